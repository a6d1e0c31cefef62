"""The colours of the pictures."""

INK = "#1f2d45"
MUTED = "#66738a"
INPUT = "#d9822b"
PAST = "#8e44ad"
PRESENT = "#1b7f9c"
SHADE = "#fff1cf"
NOTHING = "#eef1f5"
INPUT_FACE = "#fbe3c8"
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
