// RUN: saccade-opt %s --attn-lower-unpacked-accumulate=target=v4 -canonicalize -cse --split-input-file | FileCheck %s
