#!/bin/sh
# Compiles the programs of this folder, against the headers and libraries that TensorFlow's wheel brings:
#
#   PYTHON=.venv/bin/python examples/c/build.sh FOLDER    # the interpreter that has TensorFlow, and where to put them
set -eu
mkdir -p "${1:?name the folder to put the programs in}"
folder=$(cd "$1" && pwd)
tensorflow=$("${PYTHON:-python3}" -c \
  'import importlib.util; print(importlib.util.find_spec("tensorflow").submodule_search_locations[0])')
cd "$(dirname "$0")"
for name in language_model classifier; do
  cc -std=c11 -O2 -Wall -Wextra -Werror -I"$tensorflow/include" "$name.c" saved_model.c -o "$folder/$name" \
    -L"$tensorflow" -Wl,-rpath,"$tensorflow" -Wl,--no-as-needed \
    -l:libtensorflow_cc.so.2 -l:libtensorflow_framework.so.2
done
