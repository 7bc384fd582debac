"""What commands import, once for all the processes that are forked from this one."""

# ruff: noqa: F401
import apache_beam.runners.worker.sdk_worker_main
import awkward  # which gigatoken imports at its first call
import deepspeed.runtime.zero.muon.muon_optimizer  # by which ZeRO imports half of torch.compile
import sentence_transformers
import torch.utils.tensorboard
from sentence_transformers.sentence_transformer.modules import Dense
from transformers import RobertaForMaskedLM
from transformers.conversion_mapping import get_checkpoint_conversion_mapping

import eval.models.library
import eval.report.html
import eval.run
import eval.tasks.sts
import pipelines.execution.graph
import pipelines.kinds.audio
import pipelines.kinds.documents
import pipelines.kinds.images
import pipelines.kinds.sentences
import pipelines.kinds.triplets
import pipelines.run
import tests.train.ranks
import train.build
import train.engine.loop
import train.export
import train.objectives.clear
import train.objectives.mlm
import train.objectives.spans

get_checkpoint_conversion_mapping("roberta")  # whose table of all architectures is compiled once for all
