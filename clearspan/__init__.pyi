# The public names of Clearspan, a line for each: for type checkers, and for `__init__.py`, which imports a name on its
# first use.

from clearspan.adapt.run import Adapted as Adapted
from clearspan.adapt.run import adapt as adapt
from clearspan.common.encoder.sentence_encoder import Encoder as Encoder
from clearspan.eval.compare import compare as compare
from clearspan.eval.models.load import load_model as load_model
from clearspan.eval.run import evaluate as evaluate
from clearspan.pipelines.api import make_dataset as make_dataset
from clearspan.pipelines.api import make_tokenizer as make_tokenizer
from clearspan.retrieval.collection import open_collection as open_collection
from clearspan.retrieval.mining.mine_command import mine_negatives as mine_negatives
from clearspan.retrieval.search_command import search as search
from clearspan.shards import Dataset as Dataset
from clearspan.shards import verify as verify
from clearspan.shards.as_webdataset import webdataset_pipeline as webdataset_pipeline
from clearspan.train.api import Run as Run
from clearspan.train.api import export_model as export_model
from clearspan.train.api import load_recipe as load_recipe
from clearspan.train.api import train_model as train_model
