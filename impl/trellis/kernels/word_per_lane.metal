// A lane has one word of the block, and the outputs whose windows start in it: 32 / K of them, or one more where K does
// not divide 32. There are 8 * K words, so with fewer than 4 bits a weight some lanes have nothing to do.
constexpr uint block_words = BLOCK * K / 32, most = (32 + K - 1) / K;
uint block = threadgroup_position_in_grid.y * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup;
Part part = part_of<K>(shape, block, threadgroup_position_in_grid.z);
uint lane = thread_index_in_simdgroup;
if (block >= part.columns / BLOCK || lane >= block_words) return;
uint next = lane + 1 == block_words ? 0 : lane + 1;
// The first window that starts in this word, and where.
uint first = (lane * 32 + K - 1) / K, offset = first * K - lane * 32;
uint count = ((lane + 1) * 32 + K - 1) / K - first;
const device uint* words = codes + part.first_word;
auto numbers = x + ulong(part.vector) * part.rows;
float sums[most];
for (uint i = 0; i < most; ++i) sums[i] = 0;
for (uint row = part.begin; row < part.end; ++row) {
    ulong at = ulong(row) * part.stride;
    ulong both = ulong(words[at + next]) << 32 | words[at + lane];
    float scale = scales[row], number = float(numbers[row]);
    UNROLLED
    for (uint i = 0; i < most; ++i) {
        uint state = uint(both >> (offset + i * K)) & part.mask;
        sums[i] = fma(codeword<CODEBOOK>(state) * scale, number, sums[i]);
    }
}
device float* out = partial + part.sums() + (BLOCK - 1 - first);
UNROLLED
for (uint i = 0; i < most; ++i)
    if (i < count) out[-int(i)] = sums[i];
