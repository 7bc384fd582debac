"""Score a sentence encoder with the published protocols.

    data/        published files ──> texts, labels, pairs
    models/      a folder, word vectors, a function ──> embed.Embedder: texts ──> arrays; baselines of words: lexical.py
    fit/         arrays, labels ──> classifiers, regressors
    tasks/       texts embedded, scores computed ──> scores.TaskScores, with plain details for the report
    tables/      scores ──> the papers' averages and tables
    run.py       models x tasks ──> results.py ──> results.json, examples.npz
    report/      results, details ──> the summary on the terminal, report.html
    compare.py   results.json, examples.npz ──> which differences exceed noise

The commands are `clearspan eval`, `data`, `tables` and `compare`.

Papers differ in how they aggregate the same task, so every score is named after its aggregation. A task sees only
arrays and knows nothing of the model. The list of tasks is in `tasks/registry.py`.
"""
