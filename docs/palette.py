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
WEIGHTS = ("#c6dcf2", "#cfe6c3", "#e6d2f1")  # one for each set of weights
