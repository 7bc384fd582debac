"""`python -m benchmarks.findings`: measure at two scales what the papers found.

    corpora -> shards -> a base encoder, pretrained by MLM -> for each system and seed: training, evaluation
            -> benchmarks/results/findings*.json -> docs/findings.md: tables, a plot, a verdict for each finding

Modules: `scales` (sizes), `datasets` (made by the pipelines' commands), `systems` (what is trained), `study` (pretrain,
sweep, score), `claims` (what the papers found), `verdicts` (bootstrap over examples and seeds), `collected` (the
result), `page` and `plot` (write the page).
"""
