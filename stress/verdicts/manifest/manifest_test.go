// Package manifest_test checks the manifests of docs.
package manifest_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

const manifest = "../../../docs/agent-daemonset.yaml"

// decode returns the objects of the manifest. It refuses fields that their types do not have. This test is here, because this is the module
// that has the types of Kubernetes.
func decode(text string) (agents appsv1.DaemonSet, client corev1.Pod, err error) {
	first, second, _ := strings.Cut(text, "\n---\n")
	if err := yaml.UnmarshalStrict([]byte(first), &agents); err != nil {
		return agents, client, fmt.Errorf("the DaemonSet: %w", err)
	}
	if err := yaml.UnmarshalStrict([]byte(second), &client); err != nil {
		return agents, client, fmt.Errorf("the Pod: %w", err)
	}
	if agents.Kind != "DaemonSet" || agents.APIVersion != "apps/v1" || client.Kind != "Pod" || client.APIVersion != "v1" {
		return agents, client, fmt.Errorf("%v, %v; want a DaemonSet and a Pod", agents.TypeMeta, client.TypeMeta)
	}
	return agents, client, nil
}

// The manifest of the agent has only fields that Kubernetes knows, and its parts fit together.
func TestManifestOfTheAgent(t *testing.T) {
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	agents, client, err := decode(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if !labels.SelectorFromSet(agents.Spec.Selector.MatchLabels).Matches(labels.Set(agents.Spec.Template.Labels)) {
		t.Error("the selector does not match the labels of the Pods")
	}
	agent := agents.Spec.Template.Spec
	here, there := socketDir(t, agent), socketDir(t, client.Spec)
	if here != there {
		t.Errorf("the agent has its socket in %s of the node, and the client in %s", here, there)
	}
	if groups := client.Spec.SecurityContext.SupplementalGroups; len(groups) != 1 || groups[0] != *agent.SecurityContext.RunAsGroup {
		t.Error("the client is not in the group of the agent, which owns the socket")
	}
	container := agent.Containers[0]
	if probe := container.StartupProbe; probe.HTTPGet.Path != "/metrics" || probe.HTTPGet.Port.StrVal != container.Ports[0].Name {
		t.Errorf("the probe asks %v, which does not answer while the store is away", probe.HTTPGet)
	}
	if container.LivenessProbe != nil {
		t.Error("a liveness probe that fails ends all holds of the node")
	}
}

// socketDir returns the directory of the node that the container mounts, which has to exist under the same name in the container.
func socketDir(t *testing.T, pod corev1.PodSpec) string {
	t.Helper()
	mount, volume := pod.Containers[0].VolumeMounts[0], pod.Volumes[0]
	if mount.Name != volume.Name || volume.HostPath == nil || volume.HostPath.Path != mount.MountPath {
		t.Fatalf("the container mounts %+v, and the volume is %+v", mount, volume)
	}
	used := strings.Join(pod.Containers[0].Args, " ") + pod.Containers[0].Env[0].Value
	if !strings.Contains(used, mount.MountPath+"/agent.sock") {
		t.Errorf("the container uses no socket in %s: %s", mount.MountPath, used)
	}
	return volume.HostPath.Path
}

// A field that is misspelt at any place of the manifest is found.
func TestMisspeltFieldOfTheManifestIsFound(t *testing.T) {
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{
		"apiVersion", "matchLabels", "maxUnavailable", "priorityClassName", "runAsGroup", "secretKeyRef", "readOnlyRootFilesystem", "httpGet",
		"failureThreshold", "mountPath", "hostPath", "supplementalGroups", "restartPolicy", "readOnly",
	} {
		if n := strings.Count(string(text), field+":"); n == 0 {
			t.Fatalf("the manifest has no %s", field)
		}
		if _, _, err := decode(strings.ReplaceAll(string(text), field+":", field+"s:")); err == nil {
			t.Errorf("a misspelt %s is not found", field)
		}
	}
}
