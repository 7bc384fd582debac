"""Imports that commands need, made once in the process from which `tests.processes` forks them."""

# ruff: noqa: E402, F401
import gc

gc.disable()  # until everything is imported
import apache_beam.runners.worker.sdk_worker_main
import deepspeed.runtime.zero.muon.muon_optimizer  # by which ZeRO imports half of torch.compile
import sentence_transformers
import torch.utils.tensorboard
from sentence_transformers.sentence_transformer.modules import Dense
from transformers import RobertaForMaskedLM
from transformers.conversion_mapping import get_checkpoint_conversion_mapping

import clearspan.common.encoder.library
import clearspan.eval.report.html
import clearspan.eval.run
import clearspan.eval.tasks.sts
import clearspan.pipelines.builders.audio
import clearspan.pipelines.builders.documents
import clearspan.pipelines.builders.images
import clearspan.pipelines.builders.sentences
import clearspan.pipelines.builders.triplets
import clearspan.pipelines.execution.graph
import clearspan.pipelines.run
import clearspan.train.engine.loop
import clearspan.train.export
import clearspan.train.objectives.clear
import clearspan.train.objectives.mlm
import clearspan.train.objectives.spans
import clearspan.train.start.build_learner
import tests.train.ranks

get_checkpoint_conversion_mapping("roberta")  # builds a table of all architectures, here once for all processes
gc.enable()
gc.freeze()  # so that the garbage collector of a forked process does not scan the imported objects
