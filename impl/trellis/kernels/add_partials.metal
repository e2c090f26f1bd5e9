// Adds the sums of all splits, first to last: one column of one vector a thread.
uint columns = shape[1], splits = shape[2];
uint column = thread_position_in_grid.x, vector = thread_position_in_grid.y;
const device float* sums = partial + ulong(vector) * splits * columns + column;
float sum = 0;
for (uint split = 0; split < splits; ++split) sum += sums[ulong(split) * columns];
y[ulong(vector) * columns + column] = sum;
