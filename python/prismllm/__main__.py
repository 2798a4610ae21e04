from prismllm.cli import main

main()
