"""`python -m benchmarks.findings`: measure at a small scale what the papers found.

    corpora -> shards -> a base encoder, pretrained by MLM -> for each system and seed: training, evaluation
            -> benchmarks/results/findings.json -> docs/findings.md: a table, a plot, a verdict for each finding

Modules: `scales` (sizes), `systems` (what is trained), `claims` (what the papers found), `plan` (what a run consists
of, and its folders), `stages` (commands, needs, order), `preparation` (recipes, evaluation sets), `execution` (runs the
stages that are missing), `verdicts` (bootstrap over examples and seeds), `results` (reads what the stages left), `page`
(writes the page), `positives` (changed copies of sentences). Datasets, trainings and scores are made by the commands
that users type; this package plans, starts what is missing, writes recipes and pairs, and reads `results.json`,
`examples.npz` and `metrics.jsonl`.
"""
