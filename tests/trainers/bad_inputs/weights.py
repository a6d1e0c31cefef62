"""Files of weights for `import_weights`, orders of pixels, and clones for `verify`."""

# A row is a line or two, however long.
# fmt: off
# ruff: noqa: E501

import io
import zipfile

import numpy as np

from tests.trainers.bad_inputs.images import mnist
from tests.trainers.bad_inputs.row import (
    LANGUAGE,
    NO_FLAGS,
    Row,
    fifo,
    folder,
    link,
    texts,
)

WORDS, UNITS, OUTPUTS = 6, 6, 4  # of the texts: a b c d, <eos> and <unk>
DEPTH = "--config.model.depth=5 --config.model.dilation_rate=1,2"
IMPORT = f"--task=text --data_dir=text --checkpoint=weights.pkl --workdir=run {DEPTH}"
PERMUTED = (
    "--task=permuted_mnist --data_dir=digits --checkpoint=weights.pkl --workdir=run "
    "--config.model.depth=3 --config.model.dilation_rate=1,2,4"
)
DIGITS = mnist("digits", "another").files


def arrays(words: int = WORDS, **others: np.ndarray | None) -> dict:
    """Returns the arrays of the authors' language model by name, some replaced or left out."""
    table = np.ones((words, OUTPUTS), np.float32)
    layer = {
        "bias2": np.ones(4 * UNITS, np.float32),
        "weight1_raw": np.ones((4 * UNITS, OUTPUTS, 2), np.float32),
        "weight2_raw": np.ones((4 * UNITS, UNITS, 2), np.float32),
    }
    named = {"encoder.weight": table, "decoder.weight": table, "decoder.bias": table[:, 0]}
    for prefix in ("tnet.module.", "network.0.module."):
        named |= {f"{prefix}full_conv.{name}": array for name, array in layer.items()}
    named |= others
    return {name: array for name, array in named.items() if array is not None}


def npz(named: dict) -> bytes:
    """Returns a file of arrays, which the tests read in place of torch's."""
    file = io.BytesIO()
    np.savez(file, **named)
    return file.getvalue()


GOOD = npz(arrays())


def weights(name: str, line: str, content, flags: str = IMPORT) -> Row:
    """Returns the row of a file of weights."""
    return Row(name, "import_weights", flags, line, texts() | {"weights.pkl": content})


def order(name: str, line: str, content, flags: str = f"{PERMUTED} --permutation=order.npy") -> Row:
    """Returns the row of a file of the order of pixels."""
    return Row(name, "import_weights", flags, line, {**DIGITS, "weights.pkl": GOOD, "order.npy": content})


def saved(array: np.ndarray) -> bytes:
    """Returns what `np.save` writes."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def archive(**members: bytes) -> bytes:
    """Returns a zip archive."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(name.replace("__", "/"), content)
    return file.getvalue()


HUGE_ORDER = saved(np.arange(784)).replace(b"(784,), }" + b" " * 12, b"(1125899906842624,), }")
ROWS = (
    # the file
    Row("weights_missing", "import_weights", IMPORT,
        "weights.pkl: No such file or directory", texts()),
    weights("weights_are_a_folder", "--checkpoint must be a file. Received: --checkpoint=weights.pkl, which is a folder", folder),
    weights("weights_are_a_pipe", "--checkpoint must be a file. Received: --checkpoint=weights.pkl, which is a pipe", fifo),
    weights("weights_are_dev_zero", "--checkpoint must be a file. Received: --checkpoint=weights.pkl, which is a device", link("/dev/zero")),
    weights("weights_link_to_nowhere", "--checkpoint must be a file. Received: --checkpoint=weights.pkl, which is a link that leads nowhere", link("nowhere")),
    # what is in it
    weights("weights_with_other_names",
        "weights.pkl has not the weights of the authors' network for --task=text: `arrays` must have the names ['decoder.bias', 'decoder.weight', 'encoder.weight']. Received: arrays without ['decoder.bias', 'decoder.weight', 'encoder.weight'], with the unknown []", npz({"weight": np.ones(3, np.float32)})),
    weights("weights_without_encoder",
        "weights.pkl has not the weights of the authors' network for --task=text: `arrays` must have the names ['decoder.bias', 'decoder.weight', 'encoder.weight']. Received: arrays without ['encoder.weight'], with the unknown []", npz(arrays(**{"encoder.weight": None}))),
    weights("encoder_shape_differs",
        "weights.pkl has not the weights of the authors' network for --task=text: `arrays['encoder.weight']` must be of shape (None, 4). Received: (6, 3)", npz(arrays(**{"encoder.weight": np.ones((6, 3), np.float32)}))),
    weights("decoder_bias_too_long",
        "weights.pkl has not the weights of the authors' network for --task=text: `arrays['decoder.bias']` must be of shape (6,). Received: (7,)", npz(arrays(**{"decoder.bias": np.ones(7, np.float32)}))),
    weights("weights_with_more_words_than_text",
        "weights.pkl has vectors of 9 words, and the training text (text/train.txt) has 6; give the text that the weights were trained on by --data_dir", npz(arrays(words=9))),
    weights("units_unlike_weights",
        "`config.model.units` must be 6, by the shapes in the file. Received: config.model.units=7", GOOD, f"{IMPORT} --config.model.units=7"),
    weights("weights_sizes_unlike_preset",
        "the file's sizes are not the preset released's: units 6 (preset: 1400), embedding_units 4 (preset: 400), output_units 4 (preset: 400); give --config.model.depth and --config.model.dilation_rate, which no shape tells", GOOD, IMPORT.replace(DEPTH, NO_FLAGS)),
    weights("import_depth_zero",
        "`config.model.depth` must be an integer of at least 1 and below 2**31. Received: config.model.depth=0", GOOD, IMPORT.replace("5", "0")),
    weights("import_to_lstm",
        "`config.model.layer` must be 'trellis', as the authors' network is. Received: config.model.layer='lstm'", GOOD, f"{IMPORT} --config.model.layer=lstm --config.model.auxiliary_weight=0"),
    weights("import_lacks_treebank",
        "--data_dir must be a folder of ptb.train.txt, ptb.valid.txt, ptb.test.txt (or no --data_dir, so that they are downloaded). Received: --data_dir=text, which lacks ptb.train.txt, ptb.valid.txt, ptb.test.txt", GOOD, IMPORT.replace("text", "ptb", 1)),
    weights("language_weights_to_seq_mnist",
        "weights.pkl has not the weights of the authors' network for --task=seq_mnist: `arrays` must have the names ['linear.bias', 'linear.weight']. Received: arrays without ['linear.bias', 'linear.weight'], with the unknown []", GOOD, IMPORT.replace("text", "seq_mnist", 1)),
    weights("import_without_data_dir",
        "--data_dir must be a folder of train.txt, valid.txt, test.txt (or --task=pydoc, which needs none). Received: no --data_dir", GOOD, IMPORT.replace(" --data_dir=text", NO_FLAGS)),
    weights("permutation_to_text",
        "--permutation has no use for --task=text, only for permuted_mnist", GOOD, f"{IMPORT} --permutation=order.npy"),
    weights("wikitext103_without_criterion",
        "weights.pkl has not the weights of the authors' network for --task=wikitext103: the file has no tail_bias, tail_vectors, which belong to the split softmax: the authors' script saves the network without its criterion; expected both in one file, `torch.save({**model.state_dict(), **criterion.state_dict()}, file)`", GOOD, "--task=wikitext103 --data_dir=text --checkpoint=weights.pkl --workdir=run"),
    weights("import_in_mikolov_form",
        "`config.corpus.form` must be 'released' or 'paper': the authors' scripts number the vocabulary in that order. Received: config.corpus.form='mikolov'", GOOD, "--task=ptb_char --config.corpus.form=mikolov --data_dir=text --checkpoint=weights.pkl --workdir=run"),
    # the folder
    weights("import_into_text_folder",
        "text is there already; choose a new --workdir", GOOD, IMPORT.replace("--workdir=run", "--workdir=text")),
    weights("import_over_the_weights",
        "weights.pkl is there already; choose a new --workdir", GOOD, IMPORT.replace("--workdir=run", "--workdir=weights.pkl")),
    weights("import_workdir_empty",
        "--workdir must not be empty. Received: --workdir=", GOOD, IMPORT.replace("--workdir=run", "--workdir=")),
    weights("import_below_the_weights",
        "--workdir must be a folder, or the name of a new one. Received: --workdir=weights.pkl/run, of which weights.pkl is no folder", GOOD, IMPORT.replace("--workdir=run", "--workdir=weights.pkl/run")),
    # the order of pixels
    order("permutation_missing",
        '--permutation is missing: the authors\' script draws the order of the pixels anew in each process and does not save it; expected the file of `np.save("order.npy", permute.cpu().numpy())`, from the process that trained', b"", PERMUTED),
    order("permutation_empty",
        "order.npy is no file of integers that `np.save` wrote, or is cut short", b""),
    order("permutation_is_text",
        "order.npy is no file of integers that `np.save` wrote, or is cut short", b"0 1 2"),
    order("permutation_is_a_pipe", "--permutation must be a file. Received: --permutation=order.npy, which is a pipe", fifo),
    order("permutation_is_a_folder", "--permutation must be a file. Received: --permutation=order.npy, which is a folder", folder),
    order("permutation_link_to_nowhere", "--permutation must be a file. Received: --permutation=order.npy, which is a link that leads nowhere", link("nowhere")),
    order("permutation_too_short", "order.npy must have each of the integers 0, ..., 783 once", saved(np.arange(783))),
    order("permutation_all_zero", "order.npy must have each of the integers 0, ..., 783 once", saved(np.zeros(784, int))),
    order("permutation_in_floats", "order.npy must have each of the integers 0, ..., 783 once", saved(np.arange(784.0))),
    order("permutation_from_one", "order.npy must have each of the integers 0, ..., 783 once", saved(np.arange(1, 785))),
    order("permutation_pickled",
        "order.npy is no file of integers that `np.save` wrote, or is cut short", saved(np.array([{}], object))),
    order("permutation_in_an_archive", "order.npy must have each of the integers 0, ..., 783 once", archive(a=b"1")),
    order("permutation_cut_short",
        "order.npy is no file of integers that `np.save` wrote, or is cut short", saved(np.arange(784))[:-9]),
    order("permutation_header_huge", "order.npy is no file of integers that `np.save` wrote, or is cut short", HUGE_ORDER),
    order("permutation_broken_archive", "order.npy is no file of integers that `np.save` wrote, or is cut short", b"PK\x03\x04" + bytes(60)),
    # clones
    Row("clone_missing", "verify", "--task=ptb --reference_dir=clone",
        "--reference_dir must be a clone of https://github.com/locuslab/trellisnet. Received: --reference_dir=clone, which has no TrellisNet/model.py"),
    Row("clone_without_model", "verify", "--task=ptb --reference_dir=clone",
        "--reference_dir must be a clone of https://github.com/locuslab/trellisnet. Received: --reference_dir=clone, which has no TrellisNet/model.py", {"clone/README.md": "a"}),
    Row("clone_is_a_file", "verify", "--task=ptb --reference_dir=clone",
        "--reference_dir must be a clone of https://github.com/locuslab/trellisnet. Received: --reference_dir=clone, which has no TrellisNet/model.py", {"clone": "a"}),
    Row("reference_dir_empty", "verify", "--task=ptb --reference_dir=",
        "--reference_dir must not be empty. Received: --reference_dir="),
    Row("clone_missing_for_seq_mnist", "verify", "--task=seq_mnist --reference_dir=clone",
        "--reference_dir must be a clone of https://github.com/locuslab/trellisnet. Received: --reference_dir=clone, which has no TrellisNet/seq_MNIST_CIFAR/model.py"),
    Row("verify_adding", "verify", "--task=adding --reference_dir=clone",
        f"--task must be one of {LANGUAGE}, seq_mnist, permuted_mnist, seq_cifar10. Received: --task=adding"),
    Row("verify_lstm", "verify", "--task=ptb --preset=small_lstm --reference_dir=clone",
        "`config.model.layer` must be 'trellis', as the authors' network is. Received: config.model.layer='lstm'"),
    Row("verify_inject_every_2", "verify", "--task=ptb --preset=paper_inject_every_2 --reference_dir=clone",
        "`config.model.inject_every` must be 1, for the authors' code has nothing else. Received: config.model.inject_every=2"),
)
