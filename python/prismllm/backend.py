"""`init_process_group(backend="prism")` (entry point torch.distributed.backends, and at once where we are loaded)."""


def register():
    from prismllm import takeover

    takeover.register_prism()
