// biome-ignore lint/suspicious/noExplicitAny: objects have the shape that the API gives them
export type KubeObject = any;
