/* SPDX-License-Identifier: MIT
 *
 * Keep what is known of a guest that was stopped to be restored later (icountvm.snapshots): its tasks
 * with their stacks, and its modules' functions.
 */
struct kept_head {
    u64 n_tasks, n_texts, next_id;
    u64 running[MOST_CPUS]; /* addresses of the tasks that run; 0 where none is known */
};
struct kept_task {
    u64 address, depth;
    int pid, tgid;
    char comm[16];
};
struct kept_text {
    u64 from, to, n;
};

static u64 keeps; /* whether to write the file at the end */
static char kept_path[4096];
static struct task *kept_running[MOST_CPUS]; /* all NULL: the guest boots */

static void write_kept(void)
{
    void *file = fopen(kept_path, "wb");
    if (!file)
        return;
    struct kept_head head = {0, n_texts, next_id, {0}};
    for (u32 c = 0; c < n_cpus; c++)
        head.running[c] = cpus[c].task->address;
    for (u32 n = 0; n < n_tasks; n++)
        head.n_tasks += tasks[n]->address != 0;
    fwrite(&head, sizeof head, 1, file);
    for (u32 n = 0; n < n_tasks; n++) {
        struct task *task = tasks[n];
        struct kept_task one = {task->address, task->depth, task->pid, task->tgid, {0}};
        if (!task->address)
            continue;
        memcpy(one.comm, task->comm, sizeof one.comm);
        fwrite(&one, sizeof one, 1, file);
        fwrite(task->frames, sizeof *task->frames, task->depth, file);
    }
    /* The first text is the kernel's own, which comes from a file. */
    for (u32 t = 1; t < n_texts; t++) {
        struct kept_text one = {texts[t].from, texts[t].to, texts[t].n};
        fwrite(&one, sizeof one, 1, file);
        fwrite(texts[t].symbols, sizeof *texts[t].symbols, texts[t].n, file);
    }
    fclose(file);
}

static _Bool read_task(void *file, const u64 *running)
{
    struct kept_task one;
    if (fread(&one, sizeof one, 1, file) != 1 || one.depth > MOST_FRAMES)
        return 0;
    struct task *task = new_task(one.address, one.pid);
    struct task **bucket = &buckets[(one.address >> 6) % BUCKETS];
    task->tgid = one.tgid;
    memcpy(task->comm, one.comm, sizeof task->comm);
    task->next = *bucket;
    *bucket = task;
    /* push() doubles what is a power of two. */
    for (task->room = 32; task->room < one.depth;)
        task->room *= 2;
    task->frames = calloc(task->room, sizeof *task->frames);
    task->depth = (u32)one.depth;
    if (!task->frames || fread(task->frames, sizeof *task->frames, one.depth, file) != one.depth)
        return 0;
    for (u32 c = 0; c < MOST_CPUS; c++)
        if (one.address == running[c])
            kept_running[c] = task;
    return 1;
}

static _Bool read_text(void *file)
{
    struct kept_text one;
    if (fread(&one, sizeof one, 1, file) != 1 || one.n > 1 << 20)
        return 0;
    struct symbol *symbols = calloc(one.n + 1, sizeof *symbols);
    return symbols && fread(symbols, sizeof *symbols, one.n, file) == one.n &&
           add_text(one.from, one.to, symbols, (u32)one.n);
}

/* Read the file if there is one; false if it is damaged. */
static _Bool read_kept(void)
{
    struct kept_head head;
    void *file = fopen(kept_path, "rb");
    if (!file)
        return 1;
    _Bool good = fread(&head, sizeof head, 1, file) == 1;
    for (u64 n = 0; good && n < head.n_tasks; n++)
        good = read_task(file, head.running);
    for (u64 t = 1; good && t < head.n_texts; t++)
        good = read_text(file);
    fclose(file);
    if (!good || !kept_running[0])
        return 0;
    next_id = (u32)head.next_id;
    has_switched = 1;
    return 1;
}
