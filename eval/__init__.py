"""Score a sentence encoder with the published protocols.

    data/        published files ──> texts, labels, sentence pairs
    models/      a model folder, word vectors, a function or a baseline ──> Similarity: compares texts
    fit/         embeddings, labels ──> classifiers, regressors
    tasks/       data, Similarity ──> TaskScores: the scores of a task, and details for the report
    tables/      scores ──> the averages and tables of the papers
    run.py       models, tasks ──> results.json, examples.npz (in the format of results.py)
    report/      results, details ──> the summary on the terminal, report.html
    compare.py   results.json, examples.npz ──> the differences between two models, with tests of their significance

The commands are `clearspan eval`, `data`, `tables` and `compare`. `tasks/registry.py` lists the tasks.

Papers aggregate the scores of the same task in different ways, so the name of a score says how it is aggregated. A task
only gets embeddings and similarities from a model, and does not know what kind of model it is.
"""
