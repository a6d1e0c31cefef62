"""Text files that are none, or not those that they should be."""

# A row is a line or two, however long.
# fmt: off
# ruff: noqa: E501

from tests.trainers.bad_inputs.row import (
    Row,
    fifo,
    folder,
    link,
    refused,
    texts,
    unix_socket,
)

TEXT = "--task=text --data_dir=text"
WORDS = "the cat sat on the mat\n" * 20


def text(name: str, line: str, **files) -> Row:
    """Returns the row of a text of the user's own, of which a file is bad."""
    return Row(name, "lm", TEXT, line, texts(**files))


def treebank(**files) -> dict:
    """Returns the Penn Treebank's three files in the folder `text`, none of them published."""
    return {f"text/ptb.{name}.txt": files.get(name, WORDS) for name in ("train", "valid", "test")}


ROWS = (
    # the folder
    Row("text_without_data_dir", "lm", "--task=text",
        "--data_dir must be a folder of train.txt, valid.txt, test.txt (or --task=pydoc, which needs none). Received: no --data_dir"),
    Row("text_data_dir_empty", "lm", "--task=text --data_dir=", "--data_dir must not be empty. Received: --data_dir="),
    refused("text_folder_missing", "lm", "--task=text --data_dir=text",
        "a folder of train.txt, valid.txt, test.txt (or --task=pydoc, which needs none)", received="text, which is no folder"),
    refused("text_folder_missing_at_home", "lm", "--task=text --data_dir=~/text",
        "a folder of train.txt, valid.txt, test.txt (or --task=pydoc, which needs none)", received="~/text, which is no folder"),
    refused("text_home_unknown", "lm", "--task=text --data_dir=~nobody-of-this-name/text",
        "a folder of train.txt, valid.txt, test.txt (or --task=pydoc, which needs none)", received="~nobody-of-this-name/text, which is no folder"),
    refused("text_file_for_folder", "lm", "--task=text --data_dir=text/train.txt",
        "a folder of train.txt, valid.txt, test.txt (or --task=pydoc, which needs none)", texts(), received="text/train.txt, which is no folder"),
    refused("text_file_for_folder_with_slash", "lm", "--task=text --data_dir=text/train.txt/",
        "a folder of train.txt, valid.txt, test.txt (or --task=pydoc, which needs none)", texts(), received="text/train.txt/, which is no folder"),
    refused("text_folder_lacks_two_files", "lm", "--task=text --data_dir=text",
        "a folder of train.txt, valid.txt, test.txt (or --task=pydoc, which needs none)", {"text/train.txt": WORDS}, received="text, which lacks valid.txt, test.txt"),
    refused("text_file_in_capitals", "lm", "--task=text --data_dir=text",
        "a folder of train.txt, valid.txt, test.txt (or --task=pydoc, which needs none)", {"text/Train.TXT": WORDS}, received="text, which lacks train.txt, valid.txt, test.txt"),
    refused("text_folder_link_to_nowhere", "lm", "--task=text --data_dir=text",
        "a folder of train.txt, valid.txt, test.txt (or --task=pydoc, which needs none)", {"text": link("nowhere")}, received="text, which is no folder"),
    refused("text_folder_link_to_itself", "lm", "--task=text --data_dir=text",
        "a folder of train.txt, valid.txt, test.txt (or --task=pydoc, which needs none)", {"text": link("text")}, received="text, which is no folder"),
    refused("text_folder_is_a_pipe", "lm", "--task=text --data_dir=text",
        "a folder of train.txt, valid.txt, test.txt (or --task=pydoc, which needs none)", {"text": fifo}, received="text, which is no folder"),
    Row("text_folder_with_trailing_space", "lm", "--task=text --data_dir='text '",
        "--data_dir must be a name without control characters or white space at its ends. Received: --data_dir='text '", texts()),
    # what is no file
    text("train_text_is_a_folder", "text/train.txt must be a file. Received: a folder", train=folder),
    text("train_text_is_a_pipe", "text/train.txt must be a file. Received: a pipe", train=fifo),
    text("valid_text_is_a_pipe", "text/valid.txt must be a file. Received: a pipe", valid=fifo),
    text("test_text_is_a_socket", "text/test.txt must be a file. Received: a socket", test=unix_socket),
    text("train_text_is_dev_zero", "text/train.txt must be a file. Received: a device", train=link("/dev/zero")),
    text("train_text_is_dev_null", "text/train.txt must be a file. Received: a device", train=link("/dev/null")),
    text("train_text_link_to_nowhere",
        "text/train.txt must be a file. Received: a link that leads nowhere", train=link("nowhere")),
    text("valid_text_link_to_itself",
        "text/valid.txt must be a file. Received: a link that leads nowhere", valid=link("valid.txt")),
    text("train_text_unreadable", "text/train.txt cannot be read: Input/output error", train=link("/proc/self/mem")),
    # what is no text
    text("train_text_empty", "text/train.txt holds no words; expected the training text", train=b""),
    text("valid_text_empty",
        "text/valid.txt holds 0 tokens; expected at least 2, one to predict from another", valid=b""),
    text("test_text_empty", "text/test.txt holds 0 tokens; expected at least 2, one to predict from another", test=b""),
    text("train_text_line_breaks", "text/train.txt holds no words; expected the training text", train=b"\n\n\n\n"),
    text("train_text_white_space", "text/train.txt holds no words; expected the training text", train=b" \t \n \n"),
    text("valid_text_line_breaks", "text/valid.txt holds no words, only ends of lines", valid=b"\n" * 500),
    text("test_text_line_breaks", "text/test.txt holds no words, only ends of lines", test=b"\n" * 500),
    text("valid_text_one_letter",
        "the validation text (text/valid.txt) holds 2 tokens; expected at least 24, 2 (config.data.horizon + 2) in each of config.evaluation.batch_size=12 streams: use --config.evaluation.batch_size=1, or give more text", valid=b"a"),
    text("train_text_utf16",
        "text/train.txt is UTF-16 text; expected UTF-8: `iconv -f UTF-16 -t UTF-8` converts it", train=WORDS.encode("utf-16")),
    text("train_text_utf16_le_without_mark",
        "text/train.txt is not UTF-8 text: a NUL byte in line 1, at offset 1, as text in UTF-16 has them; expected a text file in UTF-8", train=WORDS.encode("utf-16-le")),
    text("valid_text_utf16_be_without_mark",
        "text/valid.txt is not UTF-8 text: a NUL byte in line 1, at offset 0, as text in UTF-16 has them; expected a text file in UTF-8", valid=WORDS.encode("utf-16-be")),
    text("test_text_utf16_be",
        "text/test.txt is UTF-16 text; expected UTF-8: `iconv -f UTF-16 -t UTF-8` converts it", test=b"\xfe\xff" + WORDS.encode("utf-16-be")),
    text("train_text_utf32",
        "text/train.txt is UTF-32 text; expected UTF-8: `iconv -f UTF-32 -t UTF-8` converts it", train=WORDS.encode("utf-32")),
    text("train_text_utf32_be",
        "text/train.txt is UTF-32 text; expected UTF-8: `iconv -f UTF-32 -t UTF-8` converts it", train=b"\x00\x00\xfe\xff" + WORDS.encode("utf-32-be")),
    text("train_text_latin_1",
        "text/train.txt is not UTF-8 text: byte 0xe9 in line 1, at offset 3; expected a text file in UTF-8", train=("caf\u00e9 " + WORDS).encode("latin-1")),
    text("valid_text_latin_1",
        "text/valid.txt is not UTF-8 text: byte 0xef in line 1, at offset 2; expected a text file in UTF-8", valid=("na\u00efve " + WORDS).encode("latin-1")),
    text("train_text_with_nul",
        "text/train.txt is not UTF-8 text: a NUL byte in line 1, at offset 3, as text in UTF-16 has them; expected a text file in UTF-8", train=b"a b\0c\n"),
    text("test_text_ends_in_nul",
        "text/test.txt is not UTF-8 text: a NUL byte in line 21, at offset 460, as text in UTF-16 has them; expected a text file in UTF-8", test=WORDS.encode() + b"\0"),
    text("train_text_cr_lines",
        "text/train.txt has lines that end in CR alone; expected LF, or CR and LF: `tr '\\r' '\\n'` converts it", train=WORDS.replace("\n", "\r").encode()),
    text("valid_text_cr_lines",
        "text/valid.txt has lines that end in CR alone; expected LF, or CR and LF: `tr '\\r' '\\n'` converts it", valid=WORDS.replace("\n", "\r").encode()),
    text("train_text_gzip",
        "text/train.txt is not UTF-8 text: a NUL byte in line 1, at offset 3, as text in UTF-16 has them; expected a text file in UTF-8", train=b"\x1f\x8b\x08\x00" + bytes(range(256))),
    text("train_text_without_spaces",
        "text/train.txt has more than 1,048,576 bytes without a space or a line break at offset 0; expected words", train=b"x" * (2**21)),
    text("train_text_cut_in_a_character",
        "text/train.txt is not UTF-8 text: byte 0xe2 in line 1, at offset 4; expected a text file in UTF-8", train=b"a b \xe2\x82"),
    Row("pieces_without_words", "lm", f"{TEXT} --config.data.tokens=pieces",
        "text/train.txt holds no words; expected the training text", texts(train=b" \t\n \n")),
    Row("pieces_latin_1", "lm", f"{TEXT} --config.data.tokens=pieces",
        "text/train.txt is not UTF-8 text: byte 0xe9 in line 1, at offset 3; expected a text file in UTF-8", texts(train=b"caf\xe9 a\n")),
    # a whole text with too little of it
    text("train_text_too_short",
        "the training text (text/train.txt) holds 5 tokens, 0 in each of config.data.batch_size=64 streams; expected at least 9 in each, for config.data.window=8: give more text", train="a b c d\n"),
    text("valid_text_too_short",
        "the validation text (text/valid.txt) holds 4 tokens; expected at least 24, 2 (config.data.horizon + 2) in each of config.evaluation.batch_size=12 streams: use --config.evaluation.batch_size=2, or give more text", valid="a b c\n"),
    text("test_text_too_short",
        "the test text (text/test.txt) holds 4 tokens; expected at least 24, 2 (config.data.horizon + 2) in each of config.evaluation.batch_size=12 streams: use --config.evaluation.batch_size=2, or give more text", test="a b c\n"),
    # published texts
    refused("treebank_folder_missing", "lm", "--task=ptb --preset=small --data_dir=text",
        "a folder of ptb.train.txt, ptb.valid.txt, ptb.test.txt (or no --data_dir, so that they are downloaded)", received="text, which is no folder"),
    refused("treebank_folder_with_other_text", "lm", "--task=ptb --preset=small --data_dir=text",
        "a folder of ptb.train.txt, ptb.valid.txt, ptb.test.txt (or no --data_dir, so that they are downloaded)", texts(), received="text, which lacks ptb.train.txt, ptb.valid.txt, ptb.test.txt"),
    Row("treebank_other_words", "lm", "--task=ptb --preset=small --data_dir=text",
        "text/ptb.train.txt is not the published file (its SHA-256 is {any}; expected {any}); --task=text trains on other text", treebank()),
    Row("treebank_train_is_a_pipe", "lm", "--task=ptb --preset=small --data_dir=text",
        "text/ptb.train.txt must be a file. Received: a pipe", treebank(train=fifo)),
    Row("treebank_mos_train_empty", "lm", "--task=ptb_mos --preset=small --data_dir=text",
        "text/ptb.train.txt is not the published file (its SHA-256 is {any}; expected {any}); --task=text trains on other text", treebank(train=b"")),
    Row("treebank_char_other_words", "lm", "--task=ptb_char --preset=small --data_dir=text",
        "text/ptb.train.txt is not the published file (its SHA-256 is {any}; expected {any}); --task=text trains on other text", treebank()),
    refused("treebank_char_lacks_two_files", "lm", "--task=ptb_char --preset=small --data_dir=text",
        "a folder of ptb.train.txt, ptb.valid.txt, ptb.test.txt (or no --data_dir, so that they are downloaded)", {"text/ptb.train.txt": WORDS}, received="text, which lacks ptb.valid.txt, ptb.test.txt"),
    refused("wikitext2_folder_with_other_text", "lm", "--task=wikitext2 --preset=small --data_dir=text",
        "a folder of wiki.train.tokens, wiki.valid.tokens, wiki.test.tokens (or no --data_dir, so that they are downloaded)", texts(), received="text, which lacks wiki.train.tokens, wiki.valid.tokens, wiki.test.tokens"),
    refused("wikitext2_lacks_two_files", "lm", "--task=wikitext2 --preset=small --data_dir=text",
        "a folder of wiki.train.tokens, wiki.valid.tokens, wiki.test.tokens (or no --data_dir, so that they are downloaded)", {"text/wiki.train.tokens": WORDS}, received="text, which lacks wiki.valid.tokens, wiki.test.tokens"),
    Row("wikitext103_utf16", "lm", "--task=wikitext103 --preset=small --data_dir=text",
        "text/wiki.train.tokens is UTF-16 text; expected UTF-8: `iconv -f UTF-16 -t UTF-8` converts it",
        {f"text/wiki.{name}.tokens": b"\xff\xfea\0" for name in ("train", "valid", "test")}),
    refused("wikitext103_file_for_folder", "lm", "--task=wikitext103 --preset=small --data_dir=text/wiki.train.tokens",
        "a folder of wiki.train.tokens, wiki.valid.tokens, wiki.test.tokens (or no --data_dir, so that they are downloaded)", {"text/wiki.train.tokens": WORDS}, received="text/wiki.train.tokens, which is no folder"),
)
