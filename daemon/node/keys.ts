/** The names that an operation locks: its container, and its pod, so that two sandboxes of one pod never overlap. */
export function operationKeys(containerId: string, podUid: string | undefined): string[] {
  return podUid === undefined
    ? [`container ${containerId}`]
    : [`container ${containerId}`, `pod ${podUid}`];
}
