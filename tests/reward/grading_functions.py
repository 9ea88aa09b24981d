"""User functions that the pool's tests grade with, imported by the workers."""

import os
import time


def length(response, golds):
    return len(response) == int(golds[0])


def sleep_on_request(response, golds):
    if response == "sleep":
        time.sleep(60)
    return response in golds


def spin_on_request(response, golds):
    while response == "spin":
        pass
    return response in golds


def grow_on_request(response, golds):
    if response == "grow":
        return len(bytearray(2**31)) == 0
    return response in golds


def fill_on_request(response, golds):
    if response == "fill":
        kept = [b"x" * 2**20 for _ in range(400)]
        time.sleep(60)
        return len(kept) == 0
    return response in golds


def die_on_request(response, golds):
    if response == "die":
        os._exit(0)
    return response in golds


def print_much(response, golds):
    print("noise\n" * 100, flush=True)
    return 1


def not_a_reward(response, golds):
    return 0.5


def process_of(response, golds):
    return os.getpid() == int(golds[0])
