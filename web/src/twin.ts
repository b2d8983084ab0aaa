// What the tests hold against the Python twin.

export { search } from "./best";
export { withBatchSize, withDecodeSpeed, withPinned } from "./pipeline";
export { simulate } from "./simulate";
