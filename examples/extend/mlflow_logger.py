"""A logger of your own: the metrics of a run in MLflow (`pip install mlflow`). Put this file into the working folder:

clearspan train --recipe demo ... 'training.loggers=[mlflow_logger:MLflow]'
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlflow


class MLflow:
    """One MLflow run for each run folder; `--resume`, at a later step than 0, goes on with it."""

    def __init__(self, run: Path, recipe: Mapping[str, Any], step: int) -> None:
        self.id_file = run / "mlflow_run_id"
        started = mlflow.start_run(run_id=self.id_file.read_text() if step else None, run_name=run.name)
        self.id_file.write_text(started.info.run_id)
        mlflow.log_dict(dict(recipe), "recipe.json")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        mlflow.log_metrics(dict(metrics), step=step)

    def close(self) -> None:
        mlflow.end_run()
