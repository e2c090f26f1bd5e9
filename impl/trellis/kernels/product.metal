// What the kernels of products share. codes: words of blocks of 256 columns; scales float [rows]; x [batch][rows];
// partial float [batch][splits][columns]; shape: rows, columns, splits, interleave, batch, bits
// of a state. A split has ceil(rows / splits) rows, the last ones fewer or none, and writes its sums even then. x and
// scales of less than 8 numbers lie in constant memory: MLX does so. impl/trellis/variants.py says what each promises.

constant constexpr uint BLOCK = 256;
// A sum of four uniform bytes has the standard deviation sqrt(21845); this is its float, and 510 its mean.
constant constexpr float INVERSE_SIGMA = 1.0f / 147.800537109375f;
// As bits, 2^23: a small whole number that is added to them is added to the float as well.
constant constexpr uint TWO_TO_23 = 0x4b000000u;
constant constexpr int MAD1 = 0, MAD2 = 1, MUL1 = 2, INST3 = 3, MCG = 4;

// On a processor the eight outputs of a lane are one vector; elsewhere they are eight registers.
#if defined(__x86_64__) || defined(__aarch64__)
#define OVER_OUTPUTS _Pragma("clang loop unroll(disable) vectorize_width(8) interleave_count(1)")
#else
#define OVER_OUTPUTS _Pragma("clang loop unroll(full)")
#endif
#define UNROLLED _Pragma("clang loop unroll(full)")

// base + the four bytes of `word`.
inline uint add_bytes(uint word, uint base) {
#ifdef __NVPTX__
    return msl_add_bytes(word, base);
#else
    uint pairs = (word & 0x00ff00ffu) + ((word >> 8) & 0x00ff00ffu);
    return base + (pairs & 0xffffu) + (pairs >> 16);
#endif
}

template <int CODEBOOK>
inline uint hashed(uint state) {
    if (CODEBOOK == MAD1) return state * 34038481u + 76625530u;
    if (CODEBOOK == MUL1) return state * 0x83dcd12du;
    if (CODEBOOK == MAD2) {
        uint word = state * 264435761u + 1013904223u;
        return word + mulhi(word, 1664525u);
    }
    uint word = CODEBOOK == INST3 ? state * 89226354u + 64248484u : state * 0xcbac1fedu;
    return (word & 0x8fff8fffu) ^ 0x3b603b60u;
}

template <int CODEBOOK>
inline float half_pair(uint state) {
    half2 parts = as_type<half2>(hashed<CODEBOOK>(state));
    return float(half(parts.x + parts.y));
}

// The float that a state stands for.
template <int CODEBOOK>
inline float codeword(uint state) {
    if (CODEBOOK >= INST3) return half_pair<CODEBOOK>(state);
    return float(int(add_bytes(hashed<CODEBOOK>(state), 0)) - 510) * INVERSE_SIGMA;
}

// The same less a factor that can go into the scale, and that factor. The bits of 2^23 make a conversion unnecessary,
// and what is subtracted from them leaves the whole number exactly.
template <int CODEBOOK>
inline float bare_codeword(uint state) {
    if (CODEBOOK >= INST3) return half_pair<CODEBOOK>(state);
    return as_type<float>(add_bytes(hashed<CODEBOOK>(state), TWO_TO_23)) - 8389118.0f;
}
template <int CODEBOOK>
inline float bare_factor() {
    return CODEBOOK >= INST3 ? 1.0f : INVERSE_SIGMA;
}

// Which sums a simdgroup makes.
struct Part {
    uint rows, columns, splits, mask;    // mask: of a state
    uint stride;                         // words from a row to the next
    uint begin, end;                     // its rows
    uint block, vector, split;
    ulong first_word;                    // of its block in row 0

    ulong sums() const { return (ulong(vector) * splits + split) * columns + block * BLOCK; }
};

template <int K>
inline Part part_of(const constant int* shape, uint block, uint vector_and_split) {
    constexpr uint words = BLOCK * K / 32;
    Part part;
    part.rows = shape[0];
    part.columns = shape[1];
    part.splits = shape[2];
    part.mask = (1u << uint(shape[5])) - 1;
    part.block = block;
    part.vector = vector_and_split / part.splits;
    part.split = vector_and_split % part.splits;
    uint each = (part.rows + part.splits - 1) / part.splits;
    part.begin = min(part.rows, part.split * each);
    part.end = min(part.rows, part.begin + each);
    part.stride = shape[3] ? 2 * words : part.columns / BLOCK * words;
    part.first_word = shape[3] ? ulong(block / 2) * part.rows * 2 * words + block % 2 * words : ulong(block) * words;
    return part;
}

// Eight windows that follow each other in a block, from bit 8 * K * `run` on: two words hold them for K <= 4, and two
// aligned words bring each of them into reach of a shift that is known at compile time.
template <int K>
struct Run {
    uint here, next, offset;

    explicit Run(uint run) {
        uint first = run * 8 * K;
        here = first / 32;
        next = here + 1 == BLOCK * K / 32 ? 0 : here + 1;
        offset = first % 32;
    }
};

// In words of 32 bits: windows 0 to 3 start in `low`, 4 to 7 in `high`.
struct Words {
    uint low, high;
};
// For `offset` from 0 to 31; 31 - offset and 1, because a shift by 32 is undefined.
template <int K>
inline Words words_from(uint word, uint after, uint offset) {
    uint low = word >> offset | after << 1 << (31 - offset), rest = after >> offset;
    return {low, low >> 4 * K | rest << (32 - 4 * K)};
}
// Window i of 0 to 7: the state of column 255 - 8 * run - i.
template <int K>
inline uint window(Words words, uint i, uint mask) {
    return (i < 4 ? words.low : words.high) >> (i % 4 * K) & mask;
}

// The same where shifts of 64 bits are as fast; on Apple's GPUs they are not.
#if defined(__x86_64__) || defined(__aarch64__) || defined(__NVPTX__)
typedef ulong Aligned;
template <int K>
inline Aligned aligned(uint word, uint after, uint offset) {
    return (ulong(after) << 32 | word) >> offset;
}
template <int K>
inline uint window(Aligned words, uint i, uint mask) {
    return uint(words >> (i * K)) & mask;
}
#else
typedef Words Aligned;
template <int K>
inline Aligned aligned(uint word, uint after, uint offset) {
    return words_from<K>(word, after, offset);
}
#endif
