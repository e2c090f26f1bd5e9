// y [M, N] = a [M, K] @ b [K, N]: a tile of 16 x 16 outputs by each threadgroup.
threadgroup float left[16][16];
threadgroup float right[16][16];
uint M = a_shape[0], K = a_shape[1], N = b_shape[1];
uint2 at = thread_position_in_threadgroup.xy;
uint row = thread_position_in_grid.y, column = thread_position_in_grid.x;
float sum = 0;
for (uint first = 0; first < K; first += 16) {
  uint k = first + at.x;
  left[at.y][at.x] = row < M && k < K ? float(a[row * K + k]) : 0;
  k = first + at.y;
  right[at.y][at.x] = column < N && k < K ? float(b[k * N + column]) : 0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint j = 0; j < 16; j++) {
    sum += left[at.y][j] * right[j][at.x];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
if (row < M && column < N) {
  y[row * N + column] = sum;
}
