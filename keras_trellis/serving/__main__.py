"""`python -m keras_trellis.serving MODELS/NAME` is `keras-trellis serve MODELS/NAME`."""

import sys

from keras_trellis.serving.server.command import main

if __name__ == "__main__":
    sys.exit(main(["serve", *sys.argv[1:]]))
