// As balanced.metal, with all 2^L codewords (`book`) in threadgroup memory instead of arithmetic: any codebook will do.
threadgroup float table[1 << L];
for (uint state = thread_index_in_threadgroup; state < (1u << L); state += threads_per_threadgroup.x)
    table[state] = book[state];
threadgroup_barrier(mem_flags::mem_threadgroup);
uint block = threadgroup_position_in_grid.y * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup;
Part part = part_of<K>(shape, block, threadgroup_position_in_grid.z);
if (block >= part.columns / BLOCK) return;
Run<K> run(thread_index_in_simdgroup);
const device uint* words = codes + part.first_word;
auto numbers = x + ulong(part.vector) * part.rows;
float sums[8] = {0, 0, 0, 0, 0, 0, 0, 0};
for (uint row = part.begin; row < part.end; ++row) {
    ulong at = ulong(row) * part.stride;
    Aligned both = aligned<K>(words[at + run.here], words[at + run.next], run.offset);
    float scale = scales[row], number = float(numbers[row]);
    OVER_OUTPUTS
    for (uint i = 0; i < 8; ++i) sums[i] = fma(table[window<K>(both, i, part.mask)] * scale, number, sums[i]);
}
device float* out = partial + part.sums() + (BLOCK - 1 - thread_index_in_simdgroup * 8);
for (uint i = 0; i < 8; ++i) out[-int(i)] = sums[i];
