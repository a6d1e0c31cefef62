"""An export that is not what was written, or is none of ours, is refused before it is loaded."""

import shutil

import pytest
import tensorflow as tf

from tests.refusals import refuses
from trainers.serving.exported import ExportedModel

NEEDED = ("tokenize", "score_v2")


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def reverse(path):
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))


@pytest.mark.parametrize(
    "file, break_it, message",
    [
        ("variables/variables.data-00000-of-00001", cut, "must have .* bytes"),
        ("variables/variables.index", cut, "must have .* bytes"),
        ("assets/vocabulary.txt", cut, "must have .* bytes"),
        ("assets/vocabulary.txt", reverse, "must have the SHA-256"),
        ("saved_model.pb", cut, "must have .* bytes"),
        ("manifest.json", cut, "is damaged"),
    ],
)
def test_a_damaged_file_is_named(
    exports, tmp_path, file, break_it, message, monkeypatch
):
    version = tmp_path / "1"
    shutil.copytree(exports["tied"], version)
    break_it(version / file)
    monkeypatch.setattr(tf.saved_model, "load", None)  # it is not even asked
    with refuses(f"{file}.*{message}") as error:
        ExportedModel(str(version), NEEDED)
    assert "\n" not in str(error.value)


class Writes(tf.saved_model.experimental.TrackableResource):
    """What writes a file when a SavedModel that has it is loaded."""

    def __init__(self, path):
        super().__init__()
        self._path = path

    def _create_resource(self):
        return tf.raw_ops.VarHandleOp(dtype=tf.int32, shape=[])

    def _initialize(self):
        tf.io.write_file(self._path, "run")


def test_a_program_of_another_is_not_run(tmp_path):
    written = tmp_path / "written"
    module = tf.Module()
    module.resource = Writes(str(written))
    module.double = tf.function(
        lambda x: 2 * x, input_signature=[tf.TensorSpec([], tf.float32)]
    )
    version = tmp_path / "1"
    tf.saved_model.save(module, str(version), signatures=module.double)
    written.unlink(missing_ok=True)
    tf.saved_model.load(str(version))
    assert written.read_text() == "run"
    written.unlink()
    with refuses("no language model: it lacks .*score"):
        ExportedModel(str(version), NEEDED)
    assert not written.exists()


def test_a_classifier_is_none(exports):
    with refuses("its manifest says 'classifier'"):
        ExportedModel(str(exports["sequences"]), NEEDED)


def test_an_export_of_an_earlier_release_has_no_manifest(exports, tmp_path):
    version = tmp_path / "1"
    shutil.copytree(exports["tied"], version)
    (version / "manifest.json").unlink()
    with pytest.warns(UserWarning, match="1 has no manifest.json: whether its files"):
        model = ExportedModel(str(version), NEEDED)
    answer = model("score_v2", text=["a b"], alternatives=[0])
    assert answer["count"].tolist() == [2]
