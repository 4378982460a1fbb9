#!/bin/sh
# Train a CLIP on the pairs in shards/ by DataComp's protocol `small` (Gadre et al. 2023, arXiv 2304.14108): ViT-B/32,
# 12.8M samples seen in batches of 4,096, however many pairs there are. Needs GPUs, `pip install 'open_clip_torch[training]'`.
#
#   GPUS=8 sh train.sh                                                what follows train.sh goes to open_clip_train
#   NAME=raw DATA='/pool/{00000000..00001287}.tar' sh train.sh        the same of the raw pool, to compare with
#
# DataComp's tests on 38 sets follow its own training with these settings, in a clone of it (FOLDER is this folder):
#   torchrun --nproc_per_node 8 train.py --scale small --data_dir FOLDER/shards --output_dir FOLDER/runs --exp_name NAME
#   python evaluate.py --train_output_dir FOLDER/runs/NAME
set -eu
cd "$(dirname "$0")"
GPUS=${GPUS:-1}
# Five checkpoints, as DataComp saves them: an epoch is a fifth of the samples.
set -- --train-data "${DATA:-$(printf '::%s' shards/*.tar | cut -c 3-)}" --dataset-type webdataset --dataset-resampled \
    --model ViT-B-32 --train-num-samples 2560000 --epochs 5 --batch-size $((4096 / GPUS)) --lr 5e-4 --warmup 500 \
    --precision amp --workers 4 --seed 0 --local-loss --gather-with-grad --grad-checkpointing --ddp-static-graph \
    --save-most-recent --save-frequency 0 --resume latest --logs runs --name "${NAME:-$(basename "$PWD")}" "$@"
if [ "$GPUS" = 1 ]; then exec python -m open_clip_train.main "$@"; fi
exec torchrun --nproc_per_node "$GPUS" -m open_clip_train.main "$@"
