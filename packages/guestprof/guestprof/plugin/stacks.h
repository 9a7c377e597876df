/* SPDX-License-Identifier: MIT
 *
 * The tasks, a shadow stack for each, and the call trees of the window that is open.
 *
 * Stacks are kept from the boot on; trees only while a window is open. A frame finds its node in a
 * tree when it is first charged there, so that opening a window costs nothing.
 */
enum { MOST_FRAMES = 512, MOST_NODES = 6 << 20, MOST_TASKS = 1 << 16, BUCKETS = 1 << 14 };
enum { MOST_CPUS = 16 };

/* How a frame came about. */
enum { CALLED, ROOT, INTERRUPT, STARTED };

struct frame {
    u64 ret; /* where it returns to; of an interrupt: the interrupted instruction */
    u32 func, kind;
    u32 node, stamp; /* its node, in the tree of this stamp */
};

struct task {
    u64 address; /* of its task_struct; 0: it ended */
    int pid, tgid;
    char comm[16];
    u32 number;  /* in the order of appearance */
    u32 named;   /* the window in which its name was read */
    u32 depth, room;
    struct frame *frames;
    u32 roots[MOST_CPUS], stamps[MOST_CPUS];
    struct tallies *tallies; /* by processor, if stacks are not followed */
    struct task *next;
};

/* As it is written to the file. A root's parent is NO_NODE, its func a task's number. */
#define NO_NODE 0xffffffffu
struct node {
    u32 func, parent, child, sibling;
    u64 instructions, calls;
};

static struct task *buckets[BUCKETS];
static struct task **tasks;
static u32 n_tasks;
static struct node *nodes;
static u32 n_nodes, room_nodes;
static u32 window; /* number of the open window, from 1; 0: none is open */
static u64 lost_nodes, lost_frames;

static struct {
    u64 pid, tgid, comm;
    u64 name, text, text_size, kallsyms, symtab, n_symtab, strtab;
} offsets;

static void read_name(struct task *task)
{
    char comm[16];
    int ids[2];
    /* Its memory may be another task's by now. */
    if (!read_memory(task->address + offsets.pid, &ids[0], 4) || ids[0] != task->pid ||
        !read_memory(task->address + offsets.comm, comm, sizeof comm))
        return;
    read_memory(task->address + offsets.tgid, &task->tgid, 4);
    for (u32 n = 0; n < 15; n++)
        task->comm[n] = comm[n] && (comm[n] < ' ' || comm[n] > '~') ? '?' : comm[n];
    task->comm[15] = 0;
    task->named = window;
}

static struct task *new_task(u64 address, int pid)
{
    struct task *task = n_tasks < MOST_TASKS ? calloc(1, sizeof *task) : tasks[0];
    if (n_tasks == MOST_TASKS)
        return task;
    task->address = address;
    task->pid = pid;
    task->number = n_tasks;
    tasks[n_tasks++] = task;
    return task;
}

static struct task *task_at(u64 address)
{
    struct task **bucket = &buckets[(address >> 6) % BUCKETS], **at = bucket;
    int pid = -1;
    read_memory(address + offsets.pid, &pid, 4);
    while (*at && (*at)->address != address)
        at = &(*at)->next;
    if (*at) {
        struct task *old = *at;
        if (old->pid == pid)
            return old;
        *at = old->next;
        free(old->frames);
        old->frames = NULL;
        old->address = old->depth = old->room = 0;
    }
    struct task *task = new_task(address, pid);
    task->next = *bucket;
    *bucket = task;
    read_name(task);
    return task;
}

/* Return the task that an address is of, if it has run; NULL otherwise. */
static struct task *known_task(u64 address)
{
    int pid;
    struct task *task = buckets[(address >> 6) % BUCKETS];
    while (task && task->address != address)
        task = task->next;
    if (!task || !read_memory(address + offsets.pid, &pid, 4) || pid != task->pid)
        return NULL;
    return task;
}

/* A task that executes another program is counted as another task from then on. */
static struct task *named_anew(struct task *task, u64 name)
{
    struct task **at = &buckets[(task->address >> 6) % BUCKETS];
    struct task *renamed = new_task(task->address, task->pid);
    while (*at && *at != task)
        at = &(*at)->next;
    if (!*at || renamed == tasks[0])
        return task;
    renamed->tgid = task->tgid;
    renamed->named = window;
    read_string(name, renamed->comm, sizeof renamed->comm);
    renamed->frames = task->frames;
    renamed->depth = task->depth;
    renamed->room = task->room;
    renamed->next = task->next;
    *at = renamed;
    for (u32 n = 0; n < renamed->depth; n++)
        renamed->frames[n].stamp = 0;
    task->frames = NULL;
    task->address = task->depth = task->room = 0;
    return renamed;
}

static u32 new_node(u32 func, u32 parent)
{
    if (n_nodes == room_nodes) {
        u32 room = room_nodes ? room_nodes * 2 : 1 << 14;
        struct node *more = room <= MOST_NODES ? realloc(nodes, room * sizeof *nodes) : NULL;
        if (!more)
            return NO_NODE;
        nodes = more;
        room_nodes = room;
    }
    nodes[n_nodes] = (struct node){func, parent, NO_NODE, NO_NODE, 0, 0};
    return n_nodes++;
}

static u32 child_of(u32 parent, u32 func)
{
    u32 before = NO_NODE, at = nodes[parent].child;
    while (at != NO_NODE && nodes[at].func != func) {
        before = at;
        at = nodes[at].sibling;
    }
    if (at == NO_NODE) {
        at = new_node(func, parent);
        if (at == NO_NODE) {
            lost_nodes++;
            return parent;
        }
    } else if (before == NO_NODE) {
        return at;
    } else {
        nodes[before].sibling = nodes[at].sibling;
    }
    /* The one that was used last comes first. */
    nodes[at].sibling = nodes[parent].child;
    nodes[parent].child = at;
    return at;
}

/* A tree for each window and processor. */
static u32 node_of(struct task *task, u32 cpu)
{
    u32 stamp = window * MOST_CPUS + cpu, n = task->depth;
    if (task->stamps[cpu] != stamp) {
        task->stamps[cpu] = stamp;
        task->roots[cpu] = new_node(task->number, NO_NODE);
        if (task->roots[cpu] == NO_NODE) {
            task->roots[cpu] = 0;
            lost_nodes++;
        }
    }
    while (n && task->frames[n - 1].stamp != stamp)
        n--;
    u32 node = n ? task->frames[n - 1].node : task->roots[cpu];
    for (; n < task->depth; n++) {
        struct frame *frame = &task->frames[n];
        frame->node = node = child_of(node, frame->func);
        frame->stamp = stamp;
    }
    return node;
}

/* Add to the top of the stack. To find its node may move all nodes. */
static void add_instructions(struct task *task, u32 cpu, u64 n)
{
    u32 node = node_of(task, cpu);
    nodes[node].instructions += n;
}

static void count_call(struct task *task, u32 cpu)
{
    if (!window)
        return;
    u32 node = node_of(task, cpu);
    nodes[node].calls++;
}

static void push(struct task *task, u32 func, u32 kind, u64 ret)
{
    if (task->depth == task->room) {
        u32 room = task->room ? task->room * 2 : 32;
        if (room > MOST_FRAMES) {
            lost_frames++;
            return;
        }
        task->frames = realloc(task->frames, room * sizeof *task->frames);
        task->room = room;
    }
    task->frames[task->depth++] = (struct frame){ret, func, kind, NO_NODE, 0};
}

static void rename_top(struct task *task, u32 func)
{
    struct frame *top = &task->frames[task->depth - 1];
    top->func = func;
    top->stamp = 0;
}

/* Begin a stack whose callers are not known. */
static void begin_broken(struct task *task)
{
    task->depth = 0;
    push(task, BROKEN, ROOT, 0);
}

/* Take off what a `ret` to this address ends; false if no frame was to return there. */
static _Bool pop_call(struct task *task, u64 address)
{
    for (u32 n = task->depth; n; n--) {
        struct frame *frame = &task->frames[n - 1];
        if (frame->kind == CALLED && frame->ret == address) {
            task->depth = n - 1;
            return 1;
        }
    }
    return 0;
}

/* Take off what an `iret` to this address ends; false if it ends no interrupt. */
static _Bool pop_interrupt(struct task *task, u64 address)
{
    for (u32 n = task->depth; n; n--) {
        struct frame *frame = &task->frames[n - 1];
        if (frame->kind == INTERRUPT && frame->ret == address) {
            task->depth = n - 1;
            return 1;
        }
    }
    return 0;
}

/* Go back to a function on the stack. An exception's handler may have moved the address it returns
 * to: a fixup, or a call that is emulated while the kernel changes its text. */
static _Bool pop_into(struct task *task, u32 func)
{
    for (u32 n = task->depth; n; n--)
        if (task->frames[n - 1].func == func) {
            task->depth = n;
            return 1;
        }
    return 0;
}
