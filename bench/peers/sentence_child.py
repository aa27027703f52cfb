"""Times sentence-transformers on one model, for `bench.peers.embeddings`.

Run as a file by an interpreter that has it, with FOLDER; it has one thread. Each line of standard input is a JSON list
of texts and a batch size; each answer is the seconds that encoding them took, and the vectors of the first few.
"""

import json
import sys
import time

FEW = 16


def main() -> None:
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)
    model = SentenceTransformer(sys.argv[1], device="cpu")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        texts, batch_size = json.loads(line)
        started = time.perf_counter()
        if batch_size == 1:  # as requests come that nobody batches
            vectors = [model.encode(text, show_progress_bar=False) for text in texts]
        else:
            vectors = list(model.encode(texts, batch_size=batch_size, show_progress_bar=False))
        took_s = time.perf_counter() - started
        sys.stdout.write(json.dumps([took_s, [vector.tolist() for vector in vectors[:FEW]]]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
