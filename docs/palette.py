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
