"""KV memory and transports on GPUs: CUDA IPC and NCCL."""
