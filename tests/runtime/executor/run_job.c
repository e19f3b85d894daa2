/* Starts a job that is linked with NCCL. */
int job(void);

int main(void) {
    return job();
}
