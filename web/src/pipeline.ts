// The twin of src/slipstream/doctor/pipeline.py: what the simulation starts from.

const PINNED_COPY = 0.5; // a copy from page-locked memory takes about half the time

export interface Pipeline {
  workers: number;
  prefetch: number; // batches per worker
  batch_size: number;
  cores: number;
  fetch_ms: number[];
  loop_ms: number[];
  fetch_cpu_share: number;
  decode_share: number;
  storage_ms: number;
  hand_over_ms: number;
  loop_cores: number;
  loop_fixed_ms: number;
  copy_ms: number;
  copy_ahead: boolean;
  pinned: boolean;
  device: boolean;
  launch_ms: number;
  run_ahead: number;
  in_order: boolean;
}

export function withBatchSize(pipeline: Pipeline, batchSize: number): Pipeline {
  const scale = batchSize / pipeline.batch_size;
  const fixed = pipeline.loop_fixed_ms;
  return {
    ...pipeline,
    batch_size: batchSize,
    fetch_ms: pipeline.fetch_ms.map((ms) => ms * scale),
    loop_ms: pipeline.loop_ms.map((ms) => Math.min(fixed, ms) + Math.max(0, ms - fixed) * scale),
    storage_ms: pipeline.storage_ms * scale,
    hand_over_ms: pipeline.hand_over_ms * scale,
    copy_ms: pipeline.copy_ms * scale,
  };
}

export function withDecodeSpeed(pipeline: Pipeline, times: number): Pipeline {
  const decode = Math.min(pipeline.decode_share, pipeline.fetch_cpu_share);
  const saved = decode - decode / times;
  const left = 1 - saved;
  return {
    ...pipeline,
    fetch_ms: pipeline.fetch_ms.map((ms) => ms * left),
    fetch_cpu_share: (pipeline.fetch_cpu_share - saved) / left,
    decode_share: decode / times / left,
  };
}

export function withPinned(pipeline: Pipeline, pinned: boolean): Pipeline {
  if (pinned === pipeline.pinned) return pipeline;
  const scale = pinned ? PINNED_COPY : 1 / PINNED_COPY;
  return { ...pipeline, pinned, copy_ms: pipeline.copy_ms * scale };
}
