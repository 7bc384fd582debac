"""Score a sentence encoder with the published protocols.

    data/    published files ──> texts, labels, pairs
    models/  a folder, word vectors, a function ──> embed.Embedder: texts ──> arrays
    fit/     arrays, labels ──> classifiers, regressors, projections
    tasks/   what is asked of the embedder, and what is computed of it ──> scores.TaskScores
    tables/  scores ──> the papers' averages and tables
    run.py   models x tasks ──> results ──> results.json, examples.npz
                                results ──> summary ──> terminal, sections ──> report/ ──> report.html
    saved.py   what was written, read again ──> tables/, compare.py: which differences exceed noise

Its commands are `python -m eval`, `eval.data`, `eval.tables` and `eval.compare`; they share command.py and files.py.

Papers differ in how they aggregate the same task, so every figure here carries the name of its aggregation. A task sees
only arrays, and knows nothing of the model. What is covered is the list in `tasks/registry.py`.
"""
