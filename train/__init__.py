"""Train an encoder on shards, on DeepSpeed: several objectives over one packed forward pass.

    config/      YAML and key=value ──> options.Recipe; recipes/ and sweeps/ hold the papers' settings
    build.py     recipe, shards ──> encoder, objectives, learner, data streams
    data/        shards ──> examples in a fixed order ──> batches on the device
    modalities/  images, clips ──> patches
    objectives/  batch ──> sequences to encode; encoded sequences ──> loss
    model/       sequences ──> packed batch ──> encoder ──> vectors and hidden states
    learner.py   all objectives of a step: one request, one forward, one summed loss
    engine/      the training loop: optimizer, checkpoints, signals, logging
    selection/   dev scores, held-out losses ──> the best checkpoint
    export.py    checkpoint ──> model folder with its card.py

The commands are `clearspan train`, which starts run.py on each device, `sweep` and `export`.
"""
