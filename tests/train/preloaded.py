"""What a training imports, once for all the processes that are forked from this one."""

# ruff: noqa: F401
import deepspeed.runtime.zero.muon.muon_optimizer  # by which ZeRO imports half of torch.compile
import sentence_transformers
import torch.utils.tensorboard
from sentence_transformers.sentence_transformer.modules import Dense
from transformers import RobertaForMaskedLM

import eval.models.library
import eval.tasks.sts
import train.build
import train.engine.loop
import train.export
import train.objectives.clear
import train.objectives.mlm
import train.objectives.spans
