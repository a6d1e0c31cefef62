"""The colours of the pictures. Those of lines and words show on white and on dark ground."""

INK = "#1f2d45"  # words in a light box, nowhere else
MUTED = "#748196"
INPUT = "#d9822b"
PAST = "#a25cc9"
PRESENT = "#1f8cab"
SHADE = "#f2b63240"
NOTHING = "#8a94a330"
INPUT_FACE = "#fbe3c8"
KEPT = "#f2b632"
KEPT_FACE = "#ffe7a8"
CELLS = ("#e4eef9", "#c6dcf2", "#a2c6e9", "#7cabdc")

# Of pictures on a transparent ground: legible on white and on the site's dark ground.
TEXT = "#7a8699"
# Everywhere one colour a layer.
LAYERS = {
    "trellis": "#1f83c4",
    "lstm": "#d55e00",
    "gru": "#009e73",
    "tcn": "#cc79a7",
    "transformer": "#e69f00",
    "skip_lstm": "#a05a2c",
    "stacked": "#8a63d2",
    "conv": "#8c8c3c",
    "sru": "#56a5d8",
    "tlstm": "#c23b5a",
    "learned": "#8a63d2",
}
WEIGHTS = ("#c6dcf2", "#cfe6c3", "#e6d2f1")  # one for each set of weights
