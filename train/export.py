"""Write a checkpoint of a run as a model folder, which sentence-transformers and `clearspan eval` load.

    clearspan export RUN_DIR OUT_DIR [--checkpoint best|last] [--onnx] [--openvino] [--int8] [--data DATASET]
    clearspan export MODEL_DIR OUT_DIR --onnx

transformers loads the transformer of the folder, without its pooling; the folder of a static encoder has no
transformer. Weights are safetensors. A masked-LM head that the run trained has a file of its own
(`train.model.mlm_head`). Parameters of objectives are left out. The folder is checksummed
(`common.checksummed_folder`): an export replaces only a folder that an export wrote and that has not changed since.
"""

import contextlib
import copy
import dataclasses
import inspect
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from clearspan.cli.command import Command, Printed, Result
from clearspan.common import files, terminal
from clearspan.common.errors import PipelineError
from clearspan.common.hub import model_folder, reference
from clearspan.common.model_folder import EncoderError, model_name, read_json
from clearspan.common.model_forms import check_folder as check_model_folder
from clearspan.common.options import Flag
from clearspan.common.terminal import UsageError
from clearspan.retrieval.retrieval_set import RetrievalSet
from clearspan.train.card import NO_STEP, PREPARED, UNCHANGED, Origin, card, read_scores
from clearspan.train.portable import make_portable
from clearspan.train.run_folder import ADAPTER, INFERENCE, check_adapted
from clearspan.train.runtimes import FormatFigures, Formats, add_formats, held_out_texts, summary

KIND, SKELETON = "model", "encoder"
DATA = "data.json"
WEIGHTS = "model.safetensors"

EXAMPLE = """
clearspan export runs/declutr-small exported/declutr-small
clearspan export adapted/model exported/adapted --onnx --int8 --data adapted/texts
"""


def save_model(
    encoder: Any, tokenizer: Any, folder: Path, recipe: str, name: str = "", origin: Origin | None = None
) -> None:
    """Write an encoder as a model folder that sentence-transformers can load, with a model card.

    Args:
        encoder: the encoder, a `TrainableEncoder`.
        tokenizer: its tokenizer, of transformers.
        folder: the folder to write; it is created if it does not exist.
        recipe: the run's recipe in YAML, for the model card.
        name: the model's name on the model card; "" for the name of the folder.
        origin: the facts on the model card about the checkpoint, its training data and its scores; None if there are
            none.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize

    from clearspan.common.pretrained import quiet_transformers
    from clearspan.train.model.mlm_head import save_mlm_head

    settings = encoder.inference
    folder.mkdir(parents=True, exist_ok=True)
    merged = encoder.adapter.merged() if encoder.adapter else contextlib.nullcontext()
    with quiet_transformers(), files.temporary_folder(folder) as stage, merged:
        modules = _transformer(encoder, tokenizer, stage) if encoder.attends else [_table(encoder, tokenizer)]
        modules += [*copy.deepcopy(list(encoder.head)), *([Normalize()] if settings.normalize else [])]
        model = SentenceTransformer(
            modules=modules,
            device="cpu",
            prompts=settings.prompts,
            default_prompt_name=settings.default_prompt_name,
            similarity_fn_name=settings.similarity_fn_name,
            truncate_dim=settings.truncate_dim,
        )
        model.save_pretrained(str(folder), create_model_card=False)
    make_portable(folder, encoder, tokenizer)
    save_mlm_head(encoder, folder)
    if encoder.adapter:
        encoder.adapter.save(encoder.base, folder / ADAPTER, encoder.adapted_from)
    text = card(encoder, name or model_name(folder), recipe, origin or Origin())
    (folder / "README.md").write_text(text, encoding="utf-8")


def _table(encoder: Any, tokenizer: Any) -> Any:
    """Return a static encoder as a `StaticEmbedding` of sentence-transformers, whose tokenizer never cuts a text."""
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    backend = copy.deepcopy(tokenizer.backend_tokenizer)
    backend.no_truncation()
    return StaticEmbedding(backend, embedding_weights=encoder.base.embeddings.folded())


def _transformer(encoder: Any, tokenizer: Any, stage: str) -> list[Any]:
    """Return an encoder that is a transformer, and its pooling, as modules of sentence-transformers.

    transformers' pooler, a layer over the first token's state that the pooling does not use, is left out if the
    architecture can be loaded without it.

    Args:
        encoder: the encoder, a `TrainableEncoder`.
        tokenizer: its tokenizer, of transformers.
        stage: an empty temporary folder, to which the transformer is written, to be loaded from there.

    Returns:
        [Transformer, Pooling], with WordWeights between them if the pooling weights tokens.
    """
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer, WordWeights

    encoder.base.save_pretrained(stage)
    tokenizer.save_pretrained(stage)
    options = {"add_pooling_layer": False}
    if "add_pooling_layer" not in inspect.signature(type(encoder.base)).parameters:
        options = {}
    transformer = Transformer(
        stage,
        model_kwargs=dict(options),
        processor_kwargs={"model_max_length": encoder.max_tokens},
        do_lower_case=encoder.inference.lower_case,
    )
    if options:  # the library reads this setting from its configuration, but does not save it there
        transformer.config_keys = [*transformer.config_keys, "model_args"]
        transformer.model_args = options
    if encoder.pooling != "weighted":
        return [transformer, Pooling(encoder.dim, encoder.pooling)]
    weights = encoder.token_weights.tolist()  # the library looks them up by a token's name
    tokens = {number: token for token, number in tokenizer.get_vocab().items()}
    names = [tokens.get(number, f"<id {number}>") for number in range(len(weights))]  # there may be spare embeddings
    weighting = WordWeights(names, dict(zip(names, weights, strict=True)))
    return [transformer, weighting, Pooling(encoder.dim, "mean")]


def save_skeleton(encoder: Any, tokenizer: Any, folder: Path, data: Mapping[str, Any] | None = None) -> None:
    """Write the skeleton of an encoder: everything that an export needs, except the weights of a checkpoint.

    It consists of the configuration, the tokenizer, the settings for inference, the layers after the pooling, and
    `data`. The folder becomes a checksummed folder. A skeleton that is in it already is replaced.

    Args:
        encoder: the encoder, a `TrainableEncoder`.
        tokenizer: its tokenizer, of transformers.
        folder: the folder to write, `encoder` in the run's folder.
        data: name of a training dataset -> facts about it for the model card (`train.card.facts`); None for no facts.

    Raises:
        CheckpointError: a file cannot be written.
    """
    with _replacing(folder, SKELETON) as part:
        encoder.base.config.save_pretrained(part)
        tokenizer.save_pretrained(part)
        inference: dict[str, Any] = {"pooling": encoder.pooling, "layers": len(encoder.head)}
        inference["given"] = encoder.given and dataclasses.asdict(encoder.given)
        inference |= {"lora": encoder.adapter.options, "base": encoder.adapted_from} if encoder.adapter else {}
        inference |= dataclasses.asdict(encoder.inference)
        (part / INFERENCE).write_text(json.dumps(inference, indent=2) + "\n")
        (part / DATA).write_text(json.dumps(data or {}, indent=2) + "\n")
        for number, dense in enumerate(encoder.head):
            (part / f"head-{number}").mkdir()
            copy.deepcopy(dense).save(str(part / f"head-{number}"))  # ZeRO's weights are views of one large tensor


def load_skeleton(folder: Path) -> Any:
    """Return an encoder, a `TrainableEncoder`, made from the skeleton that `save_skeleton` wrote to a folder.

    Its weights are not the trained ones; the caller replaces them by those of a checkpoint. An encoder with an adapter
    has the frozen weights of the model that the adapter was trained on.

    Raises:
        EncoderError: the model that the adapter was trained on is missing or damaged.
    """
    import torch
    from sentence_transformers.sentence_transformer.modules import Dense
    from transformers import AutoConfig

    from clearspan.common.encoder.attention import PACKED_ATTENTION
    from clearspan.common.pretrained import load_model, model_class
    from clearspan.train.model.encoder import TrainableEncoder
    from clearspan.train.model.source import Given, Inference

    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    model = model_class(config).from_config(config, attn_implementation=PACKED_ATTENTION)
    inference = read_json(folder / INFERENCE)
    pooling, layers = inference.pop("pooling"), range(inference.pop("layers"))
    given = Given(**known) if (known := inference.pop("given", None)) else None
    options, base = inference.pop("lora", None), inference.pop("base", "")
    head = [Dense.load(str(folder / f"head-{number}"), local_files_only=True) for number in layers]
    weights = torch.ones(config.vocab_size) if given and given.pooling == "weighted" else None
    encoder = TrainableEncoder(model, pooling, head=head, inference=Inference(**inference), token_weights=weights)
    encoder.given = given
    if options:
        encoder.base.load_state_dict(load_model(Path(base))[0].base_model.state_dict(), strict=False)
        encoder.add_adapter(options, Path(base))
    return encoder


def check_replaceable(folder: Path) -> None:
    """Check that an export may write to a folder: it is empty, does not exist, or holds an unchanged export.

    Hidden files are ignored. Files of the earlier export may be missing.

    Raises:
        CheckpointError: the folder has files that no export wrote, or that have changed since the export.
    """
    from clearspan.common.checksummed_folder import NAME, FolderChangedError, check_folder, files_in
    from clearspan.train.engine.checkpoint import CheckpointError

    if not files_in(folder) and not (folder / NAME).exists():
        return
    try:
        check_folder(
            folder, KIND, refuse_missing=False
        )  # an export that was stopped leaves a folder without some files
    except FolderChangedError as error:
        raise CheckpointError(
            f"{folder}: holds something other than an unchanged export ({error}): move it away, or name another folder"
        ) from None


def export(run: Path, folder: Path, checkpoint: str | None = None) -> str:
    """Write a checkpoint of a run as a model folder; return a few words for the user that say which checkpoint it is.

    If training never improved on the unchanged model that it started from, the best checkpoint is this model.

    Args:
        run: the run's folder.
        folder: the model folder to write.
        checkpoint: `best` or `last`; None for the best checkpoint, or the last one if no score or loss picked a best.

    Raises:
        CheckpointError, EncoderError: the folder is not the folder of a run, the checkpoint cannot be used, or `folder`
            holds files that no export wrote.
        InUseError: another export writes to `folder`.
    """
    return export_run(run, folder, checkpoint, Formats())[0]


def export_run(
    run: Path, folder: Path, checkpoint: str | None, formats: Formats, held_out: RetrievalSet | None = None
) -> tuple[str, list[FormatFigures]]:
    """Write a checkpoint as `export` does, and in further formats; return its words, and the comparison of the formats.

    Args:
        run, folder, checkpoint: as for `export`.
        formats, held_out: as for `add_formats`.

    Raises:
        CheckpointError, EncoderError, InUseError: as `export` and `add_formats`.
    """
    from clearspan.train.engine.checkpoint import CheckpointError, Checkpoints

    if not (run / "recipe.yaml").is_file() or not (run / "encoder").is_dir():
        raise CheckpointError(f"{run}: not the folder of a run (no recipe.yaml and encoder/)")
    checkpoints = Checkpoints(run)
    chosen, tag = checkpoints.choose(checkpoint)
    weights, state = checkpoints.states(tag)
    encoder, tokenizer, recipe = _trained(run, weights)
    step = int(tag.removeprefix("step-"))
    start = ""
    if step == 0:
        as_given = state.get("given") or encoder.pools_as_given
        start = NO_STEP if chosen == "last" else UNCHANGED if as_given else PREPARED
    if start == UNCHANGED:
        encoder.become_given()
    origin = Origin(step, read_json(run / SKELETON / DATA), read_scores(run / "metrics.jsonl", step), start)
    compared = write_folder(encoder, tokenizer, folder, recipe, origin, formats, held_out)
    return start or f"the {chosen} checkpoint, that of step {step:,}", compared


def export_folder(
    model: Path, folder: Path, formats: Formats, held_out: RetrievalSet | None = None
) -> list[FormatFigures]:
    """Copy a sentence-transformers folder, and write the model in further formats; return their comparison.

    Args:
        model: the folder of the model; files that cannot affect its vectors, except a README.md, are not copied.
        folder: the model folder to write.
        formats, held_out: as for `add_formats`.

    Raises:
        CheckpointError, EncoderError, InUseError: as `write_folder` and `add_formats`.
    """
    from clearspan.common.encoder.fingerprint import model_files

    with files.locked(folder):
        check_replaceable(folder)
        with _replacing(folder, KIND) as part:
            card_file = ["README.md"] if (model / "README.md").is_file() else []
            for name in (*model_files(model), *card_file):
                (part / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(model / name, part / name)
            return add_formats(part, formats, held_out)


def write_folder(
    encoder: Any,
    tokenizer: Any,
    folder: Path,
    recipe: str,
    origin: Origin,
    formats: Formats | None = None,
    held_out: RetrievalSet | None = None,
) -> list[FormatFigures]:
    """Write an encoder as a checksummed model folder, replacing an earlier, unchanged export.

    Return the comparison of the further formats; [] if there are none.

    Args:
        encoder: the encoder, a `TrainableEncoder`.
        tokenizer: its tokenizer, of transformers.
        folder: the model folder to write.
        recipe: the run's recipe in YAML, for the model card.
        origin: the facts on the model card about the checkpoint, its training data and its scores.
        formats: the formats to write in addition to safetensors; None for none.
        held_out: as for `add_formats`.

    Raises:
        CheckpointError: `folder` has files that no export wrote, or that have changed since, or it cannot be written.
        InUseError: another export writes to `folder`.
    """
    with files.locked(folder):
        check_replaceable(folder)
        with _replacing(folder, KIND) as part:
            save_model(encoder, tokenizer, part, recipe, model_name(folder), origin)
            return add_formats(part, formats, held_out) if formats else []


def _trained(run: Path, states: dict[str, Any]) -> tuple[Any, Any, str]:
    """Return the encoder of a run with the weights of a checkpoint, its tokenizer, and the run's recipe in YAML.

    Args:
        run: the run's folder.
        states: name of a parameter or buffer of the `Learner` -> its tensor in the checkpoint.

    Raises:
        CheckpointError: the run's files have changed, or a weight is missing or not finite.
    """
    from clearspan.common.checksummed_folder import FolderChangedError, check_folder
    from clearspan.train.engine.checkpoint import CheckpointError
    from clearspan.train.model.lora import load_without_frozen
    from clearspan.train.model.tokenizer import load_tokenizer
    from clearspan.train.recipe import is_written

    skeleton, recipe = run / SKELETON, run / "recipe.yaml"
    mend = "the run's own command with `resume` writes the others again"
    try:
        check_folder(skeleton, SKELETON)
    except FolderChangedError as error:
        raise CheckpointError(f"{error}: move added files away; {mend}") from None
    if not is_written(recipe):
        raise CheckpointError(f"{recipe}: has changed since the run wrote it: {mend}")
    check_adapted(run)
    encoder = load_skeleton(skeleton)
    weights = {name.removeprefix("encoder."): tensor for name, tensor in states.items()}
    if not all(f"model.{name}" in weights for name in encoder.mlm_head_parameters()):
        encoder.drop_mlm_head()
    frozen = encoder.frozen_by_adapter()
    wanted = set(encoder.state_dict()) - frozen
    weights = {name: tensor for name, tensor in weights.items() if name in wanted}
    if missing := sorted(wanted - set(weights)):
        raise CheckpointError(f"{run}: the checkpoint lacks {missing[0]} and {len(missing) - 1} other weights")
    if broken := [name for name, tensor in weights.items() if not tensor.isfinite().all()]:
        raise CheckpointError(
            f"{run}: {broken[0]} and {len(broken) - 1} other weights of the checkpoint are not finite numbers: "
            "its training failed; nothing is exported"
        )
    load_without_frozen(encoder, weights, frozen)
    return encoder, load_tokenizer(skeleton), recipe.read_text()


@contextlib.contextmanager
def _replacing(folder: Path, kind: str) -> Iterator[Path]:
    """Yield a temporary folder for the caller to fill; then write its manifest, and move its files to `folder`.

    The files that the manifest of `folder` lists are deleted first. If the move is interrupted, `folder` lacks some
    files. The weights are moved last.

    Args:
        folder: the folder whose content is replaced.
        kind: the type of folder that its manifest states: `model`, or `encoder` for a skeleton.

    Raises:
        CheckpointError: a file cannot be written.
    """
    from clearspan.common.checksummed_folder import NAME, FolderChangedError, files_in, read_manifest, write_manifest
    from clearspan.train.engine.checkpoint import CheckpointError

    part = folder / f"{files.TEMPORARY}{kind}"
    shutil.rmtree(part, ignore_errors=True)
    try:
        yield part
        write_manifest(part, kind)
        mode = (part / NAME).stat().st_mode  # from the umask; safetensors makes files that only their owner can read
        with contextlib.suppress(FolderChangedError):  # without a manifest, no file there is known to be an export's
            for name in read_manifest(folder, kind)[1]:
                (folder / name).unlink(missing_ok=True)
        (part / NAME).replace(folder / NAME)
        for name in sorted(files_in(part), key=lambda name: name == WEIGHTS):
            (folder / name).parent.mkdir(exist_ok=True)
            (part / name).chmod(mode)
            (part / name).replace(folder / name)
    except (EncoderError, PipelineError):
        raise
    except Exception as error:  # on a full disk, the libraries raise errors of any type
        raise CheckpointError(f"{folder}: could not be written ({terminal.one_line(error)})") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


@dataclass(frozen=True, kw_only=True)
class Export(Command):
    """The command `export`: writes a checkpoint of a run as a model folder."""

    error_prefix: ClassVar[str] = "export"
    example: ClassVar[str] = EXAMPLE
    remedy: ClassVar[str] = "run it again"

    of_run: Annotated[Path, Flag("RUN_DIR", positional=True, resolve=model_folder)]
    """Folder of the run; with --onnx or --openvino also of a sentence-transformers model, or hf:ORG/NAME[@REVISION]."""
    out: Annotated[Path, Flag("OUT_DIR", positional=True, output=True)]
    """Folder to write: a new one, or an export that has not been changed."""
    checkpoint: Annotated[Literal["best", "last"] | None, Flag()] = None
    """Checkpoint to write (default: best if the run has a best checkpoint, else last)."""
    onnx: Annotated[bool, Flag()] = False
    """Also write onnx/model.onnx, for ONNX Runtime (extra `onnx`); print its speed, and how far its vectors differ."""
    openvino: Annotated[bool, Flag()] = False
    """Also write openvino/openvino_model.xml, for OpenVINO (extras `onnx,openvino`); print the same."""
    int8: Annotated[bool, Flag()] = False
    """Also write each of these with weights in int8: a quarter of the size; its vectors differ more."""
    data: Annotated[Path | None, Flag("DIR")] = None
    """Dataset with a held-out part, such as texts/ of `adapt`: also print each file's MRR on its held-out texts."""

    def validate(self) -> None:
        super().validate()
        if self.data and not self.formats:
            raise ValueError("`data` has no effect without `onnx` or `openvino`: add one of them")
        if self.int8 and not self.formats:
            raise ValueError("`int8` has no effect without `onnx` or `openvino`: add one of them")
        if self.checkpoint and self.is_model:
            raise ValueError(f"`checkpoint` has no effect, since {self.of_run} is a model, not a run: leave it out")

    @property
    def formats(self) -> Formats:
        return Formats(self.onnx, self.openvino, self.int8)

    @property
    def is_model(self) -> bool:
        """Return whether the folder is of a model rather than of a run, and further formats are asked for."""
        return bool(self.formats) and not (self.of_run / "recipe.yaml").is_file()

    def run(self) -> Result:
        """Write the model folder `out`; return a line about it for the user."""
        from clearspan.train.engine.ranks import name_accelerator

        name_accelerator()
        self.formats.check()
        held_out = held_out_texts(self.data) if self.data else None
        about = "a copy of the model"
        if self.is_model:
            check_model_folder(str(self.of_run))
            if self.out.resolve().is_relative_to(self.of_run.resolve()):
                raise UsageError(f"{self.out}: is in {self.of_run}, which is copied: name a folder outside of it")
            compared = export_folder(self.of_run, self.out, self.formats, held_out)
        else:
            about, compared = export_run(self.of_run, self.out, self.checkpoint, self.formats, held_out)
        shown = f"\n{summary(compared, held_out)}" if compared else ""
        return Printed(f"{self.out}, of {reference(self.of_run)}: {about}{shown}")


main = Export.main


if __name__ == "__main__":
    sys.exit(main())
