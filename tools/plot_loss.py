#!/usr/bin/env python3
"""Draws the loss of a run: tools/plot_loss.py RUN_FOLDER OUTPUT.svg

Reads metrics.jsonl; the thin line is each step's loss, the thick one its running mean.
"""
import json
import sys

WIDTH, HEIGHT = 720, 320
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 28, 44


def running_mean(values, weight=0.95):
    result, mean = [], values[0]
    for value in values:
        mean = weight * mean + (1 - weight) * value
        result.append(mean)
    return result


def polyline(points, width, colour, opacity):
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (f'<polyline fill="none" stroke="{colour}" stroke-width="{width}" '
            f'stroke-opacity="{opacity}" points="{text}"/>')


def label(x, y, text, anchor="middle"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def draw(steps, losses):
    low, high = min(losses), max(losses)
    last = max(steps)

    def x_of(step):
        return LEFT + (WIDTH - LEFT - RIGHT) * step / last

    def y_of(loss):
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - loss) / (high - low or 1)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
             f'font-family="sans-serif" font-size="12">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for tick in range(int(low), int(high) + 1):
        if low <= tick <= high:
            y = y_of(tick)
            parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" '
                         f'stroke="#dddddd"/>')
            parts.append(label(LEFT - 8, y + 4, tick, "end"))
    for i in range(5):
        step = last * i // 4
        parts.append(label(x_of(step), HEIGHT - BOTTOM + 18, step))
    parts.append(label(WIDTH / 2, HEIGHT - 8, "step"))
    parts.append(label(LEFT, 16, "training loss, nats per token", "start"))
    points = [(x_of(s), y_of(v)) for s, v in zip(steps, losses)]
    smooth = [(x_of(s), y_of(v)) for s, v in zip(steps, running_mean(losses))]
    parts.append(polyline(points, 0.6, "#4477aa", 0.5))
    parts.append(polyline(smooth, 2, "#224466", 1))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def main(arguments):
    if len(arguments) != 2:
        sys.exit(__doc__)
    path = arguments[0] + "/metrics.jsonl"
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    if not lines:
        sys.exit(f"error: {path}: no steps")
    with open(arguments[1], "w", encoding="utf-8") as file:
        file.write(draw([line["step"] for line in lines], [line["loss"] for line in lines]))


if __name__ == "__main__":
    main(sys.argv[1:])
