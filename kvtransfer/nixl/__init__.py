"""Transport ``nixl``: receivers read the sender's memory through NIXL, over RDMA where there is such a network."""
