"""`python -m benchmarks.findings`: measure at a small scale what the papers found.

    corpora -> shards -> a base encoder, pretrained by MLM -> for each system and seed: training, evaluation
            -> benchmarks/results/findings.json -> docs/findings.md: a table, a plot, a verdict for each finding

Modules: `datasets` (made by the pipelines' commands), `systems` (what is trained), `study` (pretrain, sweep, score),
`claims` (what the papers found), `verdicts` (bootstrap over examples and seeds), `page` (writes the page).
"""
