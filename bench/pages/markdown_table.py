"""Tables in Markdown."""


def table(heading, rows):
    yield "| " + " | ".join(heading) + " |"
    yield "|" + "---|" * len(heading)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""
