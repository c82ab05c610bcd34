"""A run's event files as TensorBoard's own reader sees them, against the run's lines.

DCFORMER_BINARY names the built tool, DCFORMER_TENSORBOARD_PYTHON an interpreter that has the package
`tensorboard` (default: the one that runs this).
"""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

TOOL = os.environ.get("DCFORMER_BINARY", "")
PYTHON = os.environ.get("DCFORMER_TENSORBOARD_PYTHON", sys.executable)

# Prints {tag: [[step, value], …]} of a folder.
READER = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
if len(sys.argv) > 1:
    events = EventAccumulator(sys.argv[1])
    events.Reload()
    print(json.dumps({tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}))
"""

CLIP_NORM = 1.5


def read_events(*folder):
    return subprocess.run([PYTHON, "-c", READER, *folder], capture_output=True, text=True, check=False)


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def lines(file):
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def values(entries, key):
    return [[entry["step"], float32(entry[key])] for entry in entries]


class TensorBoard(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not TOOL:
            raise unittest.SkipTest("DCFORMER_BINARY names no tool")
        try:
            problem = read_events().stderr
        except OSError as error:
            problem = str(error)
        if "ModuleNotFoundError" in problem or "No such file" in problem:
            raise unittest.SkipTest(f"{PYTHON} has no tensorboard: {problem.strip().splitlines()[-1]}")

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        text = "".join(f"line {i} of a naïve text, and so on\n" for i in range(120))
        (self.folder / "text.txt").write_text(text, encoding="utf-8")
        model = {"dim": 16, "n_layer": 2, "n_head": 2, "intermediate_size": 32, "block_size": 32}
        train = {"steps": 6, "warmup_steps": 2, "learning_rate": 0.01, "init_std": 0.02, "batch_size": 4}
        train |= {"dtype": "f32", "clip_norm": CLIP_NORM, "evaluate_every": 2, "save_every": 2}
        data = {"text": str(self.folder / "text.txt"), "sequence_length": 32}
        run = {"model": model | {"windows": [8, None]}, "data": data, "train": train}
        (self.folder / "run.json").write_text(json.dumps(run), encoding="utf-8")

    def train(self, *arguments):
        command = [TOOL, "train", self.folder / "run.json", "--output", self.folder / "run", *arguments]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)

    def expect_events_as_lines(self, n_file):
        run = self.folder / "run"
        self.assertEqual(len(list(run.glob("events.out.tfevents.*"))), n_file)
        steps = lines(run / "metrics.jsonl")
        evaluations = lines(run / "evaluations.jsonl")
        self.assertEqual([line["step"] for line in steps], [1, 2, 3, 4, 5, 6])
        self.assertEqual([line["step"] for line in evaluations], [2, 4, 6])
        result = read_events(run)
        self.assertEqual(result.returncode, 0, result.stderr)
        clipped = [[line["step"], float32(min(line["gradient_norm"], CLIP_NORM))] for line in steps]
        self.assertEqual(
            json.loads(result.stdout),
            {
                "learning/loss": values(steps, "loss"),
                "learning/grad_norm": clipped,
                "learning/raw_grad_norm": values(steps, "gradient_norm"),
                "learning/param_norm": values(steps, "parameter_norm"),
                "learning/current_learning_rate": values(steps, "learning_rate"),
                "perf/step_time_seconds": values(steps, "seconds"),
                "perf/tokens_per_second": values(steps, "tokens_per_second"),
                "evaluation/loss": values(evaluations, "loss"),
                "evaluation/perplexity": values(evaluations, "perplexity"),
                "evaluation/accuracy": values(evaluations, "accuracy"),
            },
        )

    def test_a_run_in_two_parts(self):
        self.train("--stop-after", "4")
        self.train("--resume")
        self.expect_events_as_lines(2)

    def test_steps_that_are_done_again(self):
        self.train("--stop-after", "4")
        self.train("--resume-from", "step-00000002", "--stop-after", "3")
        self.train("--resume-from", "step-00000002")
        self.expect_events_as_lines(3)


if __name__ == "__main__":
    unittest.main()
