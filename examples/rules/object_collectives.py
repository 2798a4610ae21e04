"""A loop that hands out its configuration and its work as objects and gathers what came of it: what rank 0 sends and
what the peers tell, so that all have the sizes that they have in the job."""

from prismllm import inputs


def shard(rank, step):
    return {"seed": 1000 * step + rank, "size": 8 + 4 * (rank % 3), "note": "x" * (5 * rank)}


def work(communication):
    return [shard(rank, communication.iteration) for rank in range(communication.size)]


def sizes(communication, peer):
    given = shard(peer, communication.iteration)
    return peer, given["size"], len(given["note"])


def history(communication, peer):
    return [0.0] * communication.iteration if peer % 2 else []


inputs.objects({"lr": 0.05, "hidden": 40, "names": ["a", "b"], "seed": 77}, number=range(2), name="configuration")
inputs.objects(work, call_site="* in scatter_object_list", name="work")
inputs.peer_objects(sizes, group="0", call_site="* in all_gather_object", name="sizes of the work")
inputs.peer_objects(history, call_site="* in all_gather_object", name="history")
