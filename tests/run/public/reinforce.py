"""A policy that learns to balance: no loader, one backward pass for each episode."""

import math
import sys
from collections import deque

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.distributions import Categorical

torch.manual_seed(543)
eps = np.finfo(np.float32).eps.item()


class Pole:
    """A pole on a cart, as in the text books."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.state = self.rng.uniform(-0.05, 0.05, 4)
        return self.state.astype(np.float32)

    def step(self, action):
        x, v, angle, turn = self.state
        force = 10.0 if action == 1 else -10.0
        cos, sin = math.cos(angle), math.sin(angle)
        temp = (force + 0.05 * turn**2 * sin) / 1.1
        acc = (9.8 * sin - cos * temp) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        push = temp - 0.05 * acc * cos / 1.1
        self.state = np.array(
            [x + 0.02 * v, v + 0.02 * push, angle + 0.02 * turn, turn + 0.02 * acc]
        )
        done = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21
        return self.state.astype(np.float32), 1.0, done


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 64)
        self.dropout = nn.Dropout(p=0.6)
        self.affine2 = nn.Linear(64, 2)
        self.saved_log_probs = []
        self.rewards = []

    def forward(self, x):
        x = F.relu(self.dropout(self.affine1(x)))
        return F.softmax(self.affine2(x), dim=1)


policy = Policy()
optimizer = optim.Adam(policy.parameters(), lr=1e-2)


def select_action(state):
    state = torch.from_numpy(state).float().unsqueeze(0)
    m = Categorical(policy(state))
    action = m.sample()
    policy.saved_log_probs.append(m.log_prob(action))
    return action.item()


def finish_episode():
    R = 0
    policy_loss = []
    returns = deque()
    for r in policy.rewards[::-1]:
        R = r + 0.99 * R
        returns.appendleft(R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + eps)
    for log_prob, R in zip(policy.saved_log_probs, returns, strict=True):
        policy_loss.append(-log_prob * R)
    optimizer.zero_grad()
    policy_loss = torch.cat(policy_loss).sum()
    policy_loss.backward()
    optimizer.step()
    del policy.rewards[:]
    del policy.saved_log_probs[:]
    return policy_loss


def main():
    env = Pole(543)
    running_reward = 10
    for i_episode in range(int(sys.argv[1]) if len(sys.argv) > 1 else 40):
        state, ep_reward = env.reset(), 0
        for _ in range(1, 40):
            action = select_action(state)
            state, reward, done = env.step(action)
            policy.rewards.append(reward)
            ep_reward += reward
            if done:
                break
        running_reward = 0.05 * ep_reward + (1 - 0.05) * running_reward
        loss = finish_episode()
        if i_episode % 10 == 0:
            print(f"Episode {i_episode}\tLast: {ep_reward:.2f}\tloss {loss.item():.9f}")


if __name__ == "__main__":
    main()
