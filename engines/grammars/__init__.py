"""Answers that keep to a grammar: which tokens may come next, worked out by llguidance in a process of its own.

A grammar is text of llguidance's, made from a request by a gateway. Grammars come from clients, and a library in Rust
cannot be cancelled: a text of 142 bytes can keep it busy for ever. So no engine and no gateway runs it. Each has a
grammar process for a model, started with the first grammar. That process dies when a job takes more CPU time or memory
than it may. All the state that there is are the tokens so far, so its successor goes on for everybody but the request
whose job it was; that one fails (docs/decisions/0017).

    engine, gateway -> GrammarProcess (client) -> worker: keeps the tokenizer, forks -> child: does the jobs
"""
