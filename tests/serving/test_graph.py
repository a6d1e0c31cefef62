"""What the graph of an export holds: a server pays for all of it when it loads a version."""

import pytest
from tensorflow.core.protobuf import saved_model_pb2

from tests.serving import models


def functions_of(nodes, library):
    """Returns the names of the functions that nodes call, or give to a loop or a condition."""
    found = {node.op for node in nodes} & {*library}
    for node in nodes:
        for attribute in node.attr.values():
            found |= {attribute.func.name, *(each.name for each in attribute.list.func)}
    return found & {*library}


def reached(nodes, library):
    """Returns the names of all functions that nodes need."""
    found, ahead = set(), functions_of(nodes, library)
    while ahead:
        found |= ahead
        ahead = {
            name
            for each in ahead
            for name in functions_of(library[each].node_def, library)
        }
        ahead -= found
    return found


def graph_of(folder):
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((folder / "saved_model.pb").read_bytes())
    graph = saved.meta_graphs[0].graph_def
    return graph.node, {each.signature.name: each for each in graph.library.function}


@pytest.mark.parametrize("name", models.KINDS)
def test_a_graph_has_no_function_that_nothing_calls(exports, name):
    nodes, library = graph_of(exports[name])
    # Those with which TensorFlow makes the tables of a vocabulary, and frees them.
    resources = {
        each for each in library if "_creator_" in each or "_destroyer_" in each
    }
    assert reached(nodes, library) == {*library} - resources


@pytest.mark.parametrize("name", models.VOCABULARIES)
def test_what_signatures_share_is_in_the_graph_once(exports, name):
    """Each signature but `tokenize` reads in the same way. With a copy each there were 15,000."""
    _, library = graph_of(exports[name])
    assert sum(len(each.node_def) for each in library.values()) < 9_000
