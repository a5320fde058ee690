"""The same commands on the CPU and on GPU 0: fine-tuning on packed conversations, a chat with the model that came out,
and GPT-OSS in MXFP4. In f32 the losses agree and greedy text is the same."""

import json
import subprocess

import pytest
import tiny_gpt_oss
from chat_model import CLI

pytestmark = [pytest.mark.usefixtures("device"), pytest.mark.gpu("there is no GPU, or --device cpu")]
DEVICES = ["cpu", "cuda"]
QUESTIONS = {
    "How high is the tower?": "The tower is 300 metres high.", "Which river is long?": "The Nile is long.",
    "Who wrote Hamlet?": "Shakespeare wrote Hamlet.", "What is 2 and 3?": "5", "Where is Rome?": "Rome is in Italy.",
    "Is ice cold?": "Yes, ice is cold.", "Name a colour.": "Blue.", "How many legs has a cat?": "A cat has four legs.",
}  # fmt: skip


def tegula(*words):
    done = subprocess.run([CLI, *map(str, words)], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return done.stdout


def train(out, device, *words):
    """Losses of a training; the model is in `out`."""
    log = out.with_suffix(".jsonl")
    tegula("train", *words, "--out", out, "--log", log, "--val-fraction", 0, "--device", device)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def write_conversations(path):
    lines = [
        json.dumps({"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]}) for q, a in QUESTIONS.items()
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("preset", ["gpt_nano", "qwen3_nano"])
def test_conversations_are_learnt_by_heart(tmp_path, preset):
    data = write_conversations(tmp_path / "chats.jsonl")
    words = ["--preset", preset, "--train-file", data, "--template", "chatml", "--pack", "documents", "--seq", 128, "--batch", 4,
             "--micro-batch", 2, "--steps", 200, "--lr", 0.004]  # fmt: skip
    found = {device: train(tmp_path / device, device, *words) for device in DEVICES}
    for device in DEVICES:
        for question, answer in QUESTIONS.items():
            assert tegula("chat", tmp_path / device, "-p", question, "--temperature", 0, "--device", device).strip() == answer
    cpu, cuda = found.values()
    assert len(cpu) == len(cuda) == 200
    # Early on; small differences grow as training goes on.
    assert all(abs(a - b) <= 1e-4 * a for a, b in zip(cpu[:10], cuda))


def test_gpt_oss(tmp_path):
    directory, text = tmp_path / "oss", tmp_path / "text.txt"
    tiny_gpt_oss.make(directory)
    text.write_text("One two three four five six seven. " * 40)
    for command in (["generate", directory, "Once upon", "--max-tokens", 24], ["chat", directory, "-p", "Hi", "--max-tokens", 24]):
        texts = [tegula(*command, "--temperature", 0, "--dtype", "f32", "--device", device) for device in DEVICES]
        assert texts[0] == texts[1]
    words = ["--model", directory, "--train-file", text, "--steps", 10, "--seq", 64, "--batch", 2, "--freeze-experts", "--router-aux-loss", 0.05]
    cpu, cuda = (train(tmp_path / device, device, *words) for device in DEVICES)
    assert len(cpu) == 10 and cpu[-1] < cpu[0] and all(abs(a - b) <= 1e-4 * a for a, b in zip(cpu, cuda))
