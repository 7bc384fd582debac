"""Train an encoder on shards with DeepSpeed: several objectives share one packed forward pass.

    run.py       the command that the launcher starts on each device
    job.py       the work of one rank, from the recipe to the exported model
    recipe.py    YAML and key=value ──> a checked Recipe; recipes/ and sweeps/ hold settings from papers
    config/      the recipe's sections: options, their ranges, what may change on resume
    start/       recipe, shards ──> data streams, and the learner: encoder and objectives in one module; checks; dry run
    data/        shards ──> examples in a fixed order ──> batches on the device
    modalities/  images, clips ──> patches
    objectives/  one file per loss: batch ──> sequences to encode; encoded sequences ──> loss
    step/        all objectives of a step: their requests, one packed forward pass, one summed loss; gradient caching
    model/       packed batch ──> encoder ──> vectors and hidden states; losses
    engine/      the training loop: optimizer, checkpoints, signals, logging
    selection/   dev scores, held-out losses ──> the best checkpoint
    export.py    checkpoint ──> model folder; card.py writes its model card

There are three commands. `clearspan train` (__main__.py) starts run.py on each device; `clearspan sweep` is in
sweep.py, and `clearspan export` in export.py.
"""
