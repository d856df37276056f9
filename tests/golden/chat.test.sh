#!/bin/sh
# Chat templates as jinja2 renders them (tests/golden/gen/chat.py).
set -eu
llmq=$1
TZ=UTC "${llmq%/llmq}/checkchat" tests/golden/chat/cases.json tests/golden/chat
