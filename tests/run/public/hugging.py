"""A tiny GPT-2 from its configuration with the Trainer; nothing is downloaded."""

import torch
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)


class Text(Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(0)
        self.ids = torch.randint(0, 500, (count, 32), generator=generator)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        ids = self.ids[index]
        return {"input_ids": ids, "labels": ids.clone()}


def main():
    set_seed(1)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=500, n_positions=32, n_embd=32, n_layer=2, n_head=2)
    )
    arguments = TrainingArguments(
        "out", per_device_train_batch_size=8, num_train_epochs=2, logging_steps=10, report_to=[],
        use_cpu=True, disable_tqdm=True, eval_strategy="epoch", save_strategy="epoch", seed=1,
    )  # fmt: skip
    trainer = Trainer(
        model, arguments, train_dataset=Text(200), eval_dataset=Text(32),
        data_collator=default_data_collator,
    )  # fmt: skip
    trainer.train()
    for entry in trainer.state.log_history:
        if "loss" in entry or "eval_loss" in entry:
            print(entry.get("step"), repr(entry.get("loss", entry.get("eval_loss"))))


if __name__ == "__main__":
    main()
