"""Plots of a few bytes: a run of twenty steps plots longer than it trains."""

from matplotlib import figure

savefig = figure.Figure.savefig


def save_plain(self, file, **options):
    """Writes how many axes there are where `savefig` would plot them; frames of animations stay."""
    if options.get("format") != "png" or not hasattr(file, "write"):
        return savefig(self, file, **options)
    return file.write(f"{len(self.axes)} axes\n".encode())


def make_plain():
    """Has this process save plots in this way."""
    figure.Figure.savefig = save_plain
